#include "emulator/wgmma.h"

#include <algorithm>
#include <cstring>

#include "base/dtype.h"
#include "emulator/machine.h"

namespace iso::emu {
namespace {

constexpr int kRows = 64, kDepth = 16, kMaxColumns = 256;

std::string pipe_detail(const Thread& thread) {
  const Warpgroup& w = *static_cast<const Warpgroup*>(thread.wait.object);
  if (w.pipe.empty()) return "its products";
  return "the product at " + name(w.pipe.front().at) + ", to which " + std::to_string(w.pipe.front().arrived) + " of " +
         std::to_string(kWarpgroupSize) + " threads have come";
}

// Thread `lane` of the warpgroup holds rows row and row + 8 and, of every 8 columns, two beginning at column.
struct Owned {
  int row, column;
  explicit Owned(u32 lane)
      : row(static_cast<int>(lane / 32 * 16 + lane % 32 / 4)), column(static_cast<int>(lane % 4 * 2)) {}
};

template <class F>
void for_each_accumulator(u32 lane, int n, F f) {  // f(index in the registers, index in the tile)
  const Owned owned(lane);
  for (int j = 0; j < n / 8; j++)
    for (int i = 0; i < 2; i++)
      for (int c = 0; c < 2; c++) f(j * 4 + i * 2 + c, (owned.row + 8 * i) * n + j * 8 + owned.column + c);
}

float element(MatrixType type, u16 bits) { return type == MatrixType::bf16 ? to_float(bf16{bits}) : to_float(f16{bits}); }

MatrixDescriptor descriptor(u64 bits) {
  MatrixDescriptor d{};
  decode(bits, d);  // checked when the product was issued
  return d;
}

template <class F>
void for_each_unit(const MatrixDescriptor& d, bool mn_major, int mn_size, F f) {  // f(address, mn, k)
  if (mn_major) {
    for (int k = 0; k < kDepth; k++)
      for (int mn = 0; mn < mn_size; mn += 8) f(unit_address(d, true, static_cast<u32>(mn), static_cast<u32>(k)), mn, k);
  } else {
    for (int mn = 0; mn < mn_size; mn++)
      for (int k = 0; k < kDepth; k += 8) f(unit_address(d, false, static_cast<u32>(mn), static_cast<u32>(k)), mn, k);
  }
}

// The operand as floats: out[mn * mn_stride + k * k_stride].
void load_operand(Cta& cta, u64 desc, MatrixType type, bool mn_major, int mn_size, int mn_stride, int k_stride,
                  float* out) {
  for_each_unit(descriptor(desc), mn_major, mn_size, [&](u32 address, int mn, int k) {
    u16 unit[8];
    std::memcpy(unit, cta.grid.shared_bytes(cta, address), sizeof unit);
    float* at = out + mn * mn_stride + k * k_stride;
    const int step = mn_major ? mn_stride : k_stride;
    for (int i = 0; i < 8; i++) at[i * step] = element(type, unit[i]);
  });
}

void load_fragments(const Wgmma& op, float* out) {
  for (u32 lane = 0; lane < kWarpgroupSize; lane++) {
    const Owned owned(lane);
    for (int i = 0; i < 4; i++) {
      float* at = out + (owned.row + 8 * (i & 1)) * kDepth + owned.column + 8 * (i >> 1);
      at[0] = element(op.shape.type, static_cast<u16>(op.a[lane][i]));
      at[1] = element(op.shape.type, static_cast<u16>(op.a[lane][i] >> 16));
    }
  }
}

// c[64][n] += a[64][16] b[16][n], in fp32, in the order of k: the tensor cores' own order and rounding are unknown.
void multiply(float* c, const float* a, const float* b, int n) {
  for (int i = 0; i < kRows; i++)
    for (int k = 0; k < kDepth; k += 4) {
      const float a0 = a[i * kDepth + k], a1 = a[i * kDepth + k + 1], a2 = a[i * kDepth + k + 2],
                  a3 = a[i * kDepth + k + 3];
      const float *b0 = b + k * n, *b1 = b0 + n, *b2 = b1 + n, *b3 = b2 + n;
      float* row = c + i * n;
      for (int j = 0; j < n; j++) row[j] = row[j] + a0 * b0[j] + a1 * b1[j] + a2 * b2[j] + a3 * b3[j];
    }
}

void update_listing(Grid& grid, Warpgroup& w) {
  if (can_execute(w) == w.listed) return;
  w.listed = !w.listed;
  if (w.listed)
    grid.busy_warpgroups.push_back(&w);
  else
    std::erase(grid.busy_warpgroups, &w);
}

}  // namespace

bool can_execute(const Warpgroup& w) { return !w.pipe.empty() && w.pipe.front().issued; }

void execute_next(Grid& grid, Warpgroup& w) {
  Wgmma& op = w.pipe.front();
  const int n = op.shape.n;
  static thread_local float a[kRows * kDepth], b[kMaxColumns * kDepth];
  if (op.shape.a_in_registers)
    load_fragments(op, a);
  else
    load_operand(*w.cta, op.desc_a, op.shape.type, op.shape.a_mn_major, kRows, kDepth, 1, a);
  load_operand(*w.cta, op.desc_b, op.shape.type, op.shape.b_mn_major, n, 1, n, b);
  std::vector<float>& c = w.tiles[static_cast<std::size_t>(op.tile)].values;
  if (!op.scale_d) std::fill(c.begin(), c.end(), 0.0f);
  multiply(c.data(), a, b, n);
  w.pipe.pop_front();
  w.executed++;
  update_listing(grid, w);
}

// --- fragments -------------------------------------------------------------------------------------------------------

void Fragment::find_fences() { fences_ = &this_thread().wgmma.fences; }

void Fragment::lose() {
  std::erase(owner_->wgmma.in_flight, this);
  owner_->wgmma.lost_fragment = true;
  owner_->wgmma.lost_at = issued_at_;
}

void Fragment::fail_in_flight(int index) const {
  fail(errors::RegistersInFlight{
      .thread = owner_->cta->grid.actor_name(owner_->actor),
      .registers = (values_ ? "accumulator " : "fragment of A, register ") + std::to_string(index),
      .wgmma = name(issued_at_)});
}

// One thread's view of its warpgroup's pipe at one instruction.
struct WgmmaPipe {
  explicit WgmmaPipe(const char* instruction_, Location at_)
      : t(this_thread()),
        grid(t.cta->grid),
        instruction(instruction_),
        at(at_),
        lane(t.tid % kWarpgroupSize),
        w(warpgroup()) {}

  Warpgroup& warpgroup() {
    const u32 index = t.tid / kWarpgroupSize;
    if (index >= t.cta->warpgroups.size()) differ("its warpgroup has less than 128 threads");
    return t.cta->warpgroups[index];
  }

  [[noreturn]] void differ(const std::string& reason) const {
    fail(errors::WgmmaOperandsDiffer{.where = grid.where(t, at), .reason = reason});
  }

  [[noreturn]] void fence_missing(const char* reason) const {
    fail(errors::WgmmaFenceMissing{.where = grid.where(t, at), .reason = reason});
  }

  void check_fences(const Fragment& d, const Fragment* a, bool scale_d) const {
    if (!t.wgmma.fences) fence_missing("there was no wgmma.fence before the first wgmma");
    if (grid.config.rules.wgmma_fence_after_register_access) {
      if (d.touched_ > t.wgmma.fences) fence_missing("the accumulators were accessed after the last wgmma.fence");
      if (a && a->touched_ > t.wgmma.fences) fence_missing("the fragment of A was accessed after the last wgmma.fence");
    } else if (!t.wgmma.fenced) {
      fence_missing("there was no wgmma.fence after the last wgmma.wait_group");
    }
    if (scale_d && !d.touched_ && !d.defined_)
      fail(errors::UninitialisedRead{
          .instruction = instruction, .where = grid.where(t, at), .address = "accumulator registers"});
  }

  void check_descriptor(const char* operand, u64 bits) const {
    MatrixDescriptor d;
    if (const std::string wrong = decode(bits, d); !wrong.empty())
      fail(errors::MatrixDescriptorInvalid{.where = grid.where(t, at), .operand = operand, .reason = wrong});
  }

  Wgmma& join_product(const WgmmaShape& shape, u64 desc_a, u64 desc_b, bool scale_d) {
    const u64 index = t.wgmma.issued++ - w.executed;
    const u32 group = t.wgmma.groups + 1;
    if (index == w.pipe.size()) {
      Wgmma& op = w.pipe.emplace_back();
      op.shape = shape;
      op.desc_a = desc_a;
      op.desc_b = desc_b;
      op.scale_d = scale_d;
      op.group = group;
      op.at = at;
      for (u32 warp = 0; warp < 4; warp++)
        op.warps[warp] = Observer(actor_id(t.cta->index, w.index * kWarpgroupSize + warp * kWarpSize), kWarpSize);
      if (shape.a_in_registers) op.a.resize(kWarpgroupSize);
    }
    Wgmma& op = w.pipe[index];
    if (!(op.at == at)) differ("another thread of the warpgroup is at the wgmma at " + name(op.at));
    if (!(op.shape == shape) || op.scale_d != scale_d) differ("shape or scale_d differ inside the warpgroup");
    if (op.desc_a != desc_a || op.desc_b != desc_b) differ("the matrix descriptors differ inside the warpgroup");
    if (op.group != group) differ("the wgmma belongs to another commit group in other threads");
    return op;
  }

  void hand_over(Wgmma& op, Fragment& d) {
    const bool fresh = !d.owner_, first = op.arrived == 0;
    if (first) {
      op.fresh = fresh;
      op.tile = fresh ? free_tile(op.shape.n) : d.tile_;
    }
    if (op.fresh != fresh || (!fresh && d.tile_ != op.tile))
      differ("the accumulators are not the same variable in all threads");
    Warpgroup::Tile& tile = w.tiles[static_cast<std::size_t>(op.tile)];
    if (tile.n != op.shape.n) differ("the accumulators are in flight with another shape");
    if (fresh && op.scale_d)
      for_each_accumulator(lane, op.shape.n,
                           [&](int r, int i) { tile.values[static_cast<std::size_t>(i)] = d.values_[r]; });
    d.tile_ = op.tile;
    d.defined_ = true;
    put_in_flight(op, d);
  }

  int free_tile(int n) {
    std::size_t i = 0;
    while (i < w.tiles.size() && w.tiles[i].n) i++;
    if (i == w.tiles.size()) w.tiles.emplace_back();
    w.tiles[i].n = n;
    w.tiles[i].returned = 0;
    w.tiles[i].values.resize(static_cast<std::size_t>(kRows * n));
    return static_cast<int>(i);
  }

  void put_in_flight(const Wgmma& op, Fragment& f) {
    if (!f.owner_) t.wgmma.in_flight.push_back(&f);
    f.owner_ = &t;
    f.group_ = op.group;
    f.issued_at_ = at;
  }

  void issue(Wgmma& op) {
    check_operand("wgmma operand B", op.desc_b, op.shape.b_mn_major, op.shape.n, op);
    if (!op.shape.a_in_registers) check_operand("wgmma operand A", op.desc_a, op.shape.a_mn_major, kRows, op);
    op.warps.fill(Observer());
    op.issued = true;
    grid.stats.wgmmas++;
    grid.stats.flops += 2ull * kRows * kDepth * static_cast<u64>(op.shape.n);
    update_listing(grid, w);
    for (Thread* waiting : std::exchange(w.waiting, {})) grid.wake(*waiting);
  }

  void check_operand(const char* operand, u64 desc, bool mn_major, int mn_size, const Wgmma& op) const {
    const MatrixDescriptor d = descriptor(desc);
    const Access access{.instruction = operand,
                        .at = at,
                        .issuer = t.actor,
                        .actor = w.actor,
                        .time = op.group,
                        .async = true,
                        .swizzle = static_cast<u8>(1 + static_cast<int>(d.swizzle))};
    AccessCheck check(grid, grid.config.rules, access, op.warps);
    for_each_unit(d, mn_major, mn_size, [&](u32 address, int, int) {
      grid.check_bounds(t, address, 16, 16, operand, at);
      check(t.cta->shadow, Grid::shared_offset(address), 16);
    });
  }

  // Executes what the thread waits for; false if other threads have not come to it yet.
  bool drain(u32 group) {
    while (can_execute(w) && w.pipe.front().group <= group) execute_next(grid, w);
    return w.pipe.empty() || w.pipe.front().group > group;
  }

  void give_back(u32 group) {
    std::erase_if(t.wgmma.in_flight, [&](Fragment* f) {
      if (f->group_ > group) return false;
      f->owner_ = nullptr;
      if (!f->values_) return true;
      Warpgroup::Tile& tile = w.tiles[static_cast<std::size_t>(f->tile_)];
      for_each_accumulator(lane, tile.n, [&](int r, int i) { f->values_[r] = tile.values[static_cast<std::size_t>(i)]; });
      if (++tile.returned == kWarpgroupSize) tile.n = 0;
      return true;
    });
  }

  Thread& t;
  Grid& grid;
  const char* instruction;
  Location at;
  u32 lane;
  Warpgroup& w;
};

// --- instructions ----------------------------------------------------------------------------------------------------

void wgmma_fence(Location) {
  Thread& t = this_thread();
  t.wgmma.fences++;
  t.wgmma.fenced = true;
}

void wgmma_commit_group(Location) { this_thread().wgmma.groups++; }

void wgmma_mma_async(const WgmmaShape& shape, Fragment& d, Fragment* a, const u32* a_registers, u64 desc_a, u64 desc_b,
                     bool scale_d, Location at) {
  WgmmaPipe pipe("wgmma.mma_async", at);
  pipe.check_fences(d, a, scale_d);
  if (!a) pipe.check_descriptor("A", desc_a);
  pipe.check_descriptor("B", desc_b);
  Wgmma& op = pipe.join_product(shape, desc_a, desc_b, scale_d);
  pipe.hand_over(op, d);
  if (a) {
    std::copy_n(a_registers, 4, op.a[pipe.lane].begin());
    pipe.put_in_flight(op, *a);
  }
  pipe.t.wgmma.last_at = at;
  op.warps[pipe.lane / kWarpSize].add(pipe.t.actor, pipe.t.time, pipe.t.known, pipe.t.knows_previous_grid);
  if (++op.arrived == kWarpgroupSize) pipe.issue(op);
}

void wgmma_wait_group(u32 pending, Location at) {
  WgmmaPipe pipe("wgmma.wait_group", at);
  Thread& t = pipe.t;
  const u32 group = t.wgmma.groups > pending ? t.wgmma.groups - pending : 0;
  while (!pipe.drain(group)) {
    pipe.w.waiting.push_back(&t);
    pipe.grid.block(t, {"wgmma.wait_group", at, &pipe.w, group, &pipe_detail});
  }
  pipe.give_back(group);
  if (group) acquire(t, pipe.w.actor, group);
  t.wgmma.fenced = false;
}

}  // namespace iso::emu
