#include "emulator/registers.h"

#include <algorithm>
#include <string>

#include "emulator/machine.h"

namespace iso::emu {
namespace {

std::string pool_detail(const Thread& thread) {
  return std::to_string(thread.wait.value) + " registers per thread, " + std::to_string(thread.cta->registers.free) +
         " registers are in the CTA's pool";
}

}  // namespace

void setmaxnreg(u32 registers, bool increase, Location at) {
  Thread& t = this_thread();
  Grid& grid = t.cta->grid;
  RegisterPool& pool = t.cta->registers;
  const char* instruction = increase ? "setmaxnreg.inc" : "setmaxnreg.dec";
  const auto reject = [&](const std::string& reason) {
    fail(errors::RegisterCount{
        .instruction = instruction, .where = grid.where(t, at), .registers = registers, .reason = reason});
  };
  if (registers % 8 || registers < 24 || registers > 256) reject("expected a multiple of 8 from 24 to 256");
  if (increase ? registers < t.registers : registers > t.registers)
    reject("the thread has " + std::to_string(t.registers) + " registers");
  // All warps of a warpgroup must execute the same instruction: compare the nth requests.
  std::vector<u32>& mine = pool.requests[t.warp()];
  if (t.lane() == 0) mine.push_back(registers);
  const std::size_t nth = mine.size();
  for (u32 w = t.warp() / 4 * 4; w < std::min<std::size_t>(t.warp() / 4 * 4 + 4, pool.requests.size()); w++)
    if (nth && pool.requests[w].size() >= nth && pool.requests[w][nth - 1] != mine[nth - 1])
      reject("another warp of the warpgroup asks for " + std::to_string(pool.requests[w][nth - 1]));
  warp_rendezvous(instruction, registers, 0, nullptr, at, [](Thread&, Rendezvous&) {});
  // The lanes take their shares one by one; the pool is handed out in whole warps because all lanes of a warp ask.
  while (increase && pool.free < (registers - t.registers)) {
    pool.waiting.push_back(&t);
    grid.block(t, {instruction, at, &pool, registers, &pool_detail});
  }
  if (increase) {
    pool.free -= registers - t.registers;
  } else {
    pool.free += t.registers - registers;
    for (Thread* waiting : std::exchange(pool.waiting, {})) grid.wake(*waiting);
  }
  t.registers = registers;
}

}  // namespace iso::emu
