#include <algorithm>
#include <stdexcept>

#include "emulator/machine.h"

namespace iso::emu {
namespace {

thread_local Thread* current = nullptr;

struct Cancelled {};  // unwinds the fibers of a launch that has failed

// Chance that an engine goes before a thread that could run. Small: late completion is what finds early reads.
constexpr u64 kEngineFirst = 32;
// Mostly first come first served, so that lanes of a warp run together; sometimes anyone.
constexpr u64 kRandomThread = 8;

constexpr u32 kRegisterFile = 65536, kMaxThreads = 1024, kMaxClusterSize = 8;

std::string text(const Dim3& d) {
  return "(" + std::to_string(d.x) + "," + std::to_string(d.y) + "," + std::to_string(d.z) + ")";
}

}  // namespace

Thread& this_thread() {
  if (!current) throw std::logic_error("an emulated instruction was executed outside of emu::launch");
  return *current;
}

void release(Thread& thread, KnowledgeBuilder& into) {
  into.join(thread.known);
  into.ordered.raise(thread.actor, thread.time);
  thread.time++;
}

void acquire(Thread& thread, const Knowledge& known) {
  ClockMemo& clocks = thread.cta->grid.clocks;
  thread.known.ordered = clocks.join(thread.known.ordered, known.ordered);
  thread.known.async_shared = clocks.join(thread.known.async_shared, known.async_shared);
  thread.known.async_global = clocks.join(thread.known.async_global, known.async_global);
}

void acquire(Thread& thread, ActorId actor, u32 time) {
  thread.known.ordered = thread.cta->grid.clocks.raise(thread.known.ordered, actor, time);
}

// --- CTA -------------------------------------------------------------------------------------------------------------

Cta::Cta(Grid& g, Cluster& c, u32 i, u32 r)
    : grid(g),
      cluster(c),
      index(i),
      rank(r),
      shared(static_cast<u8*>(
          std::aligned_alloc(kSharedBase, g.config.shared_bytes / kSharedBase * kSharedBase + kSharedBase))),
      shadow("shared memory", g.config.shared_bytes, false, false) {
  const Dim3 &size = g.config.cluster, clusters{g.config.grid.x / size.x, g.config.grid.y / size.y, 1};
  id = {c.index % clusters.x * size.x + r % size.x, c.index / clusters.x % clusters.y * size.y + r / size.x % size.y,
        c.index / (clusters.x * clusters.y) * size.z + r / (size.x * size.y)};
  mbarriers.at.resize(g.config.shared_bytes / 8 + 1);
  barriers.warps.resize((g.config.threads + kWarpSize - 1) / kWarpSize);
  registers.requests.resize(barriers.warps.size());
  running = g.config.threads;
  for (u32 tid = 0; tid < g.config.threads; tid++) {
    Thread& t = threads.emplace_back();
    t.cta = this;
    t.tid = tid;
    t.actor = actor_id(index, tid);
    t.knows_previous_grid = !g.config.programmatic;
    t.registers = g.config.registers ? g.config.registers : std::min(256u, kRegisterFile / g.config.threads / 8 * 8);
  }
  warpgroups.resize(g.config.threads / kWarpgroupSize);
  for (u32 w = 0; w < warpgroups.size(); w++) {
    warpgroups[w].cta = this;
    warpgroups[w].index = w;
    warpgroups[w].actor = new_actor("wgmma of warpgroup " + std::to_string(w));
  }
}

ActorId Cta::new_actor(std::string name) {
  actor_names.push_back(std::move(name));
  const u32 number = grid.config.threads + static_cast<u32>(actor_names.size()) - 1;
  if (number >= kMaxActors)
    fail(errors::LaunchInvalid{.reason = "one CTA has more than " + std::to_string(kMaxActors) +
                                         " threads, barriers and threads with asynchronous copies"});
  return actor_id(index, number);
}

void Cta::note_remote_access(ActorId actor, u32 time) {
  for (auto& [known, latest] : remote_accesses)
    if (known == actor) {
      latest = std::max(latest, time);
      return;
    }
  remote_accesses.emplace_back(actor, time);
}

// --- launch ----------------------------------------------------------------------------------------------------------

Expected<LaunchStats> launch(const LaunchConfig& config, GlobalMemory& memory, const std::function<void()>& kernel) {
  memory.forget_launch();
  Grid grid(config, memory, kernel);
  return grid.run();
}

Grid::Grid(const LaunchConfig& c, GlobalMemory& m, const std::function<void()>& kernel)
    : config(c), memory(m), kernel_(kernel), random_(c.seed * 0x9E3779B97F4A7C15u + 0x1234567u) {}

Expected<LaunchStats> Grid::run() {
  try {
    check_config();
    schedule();
  } catch (const Fault& fault) {  // of an engine, or a deadlock
    if (!error_) error_ = fault.error;
  }
  cancel();
  if (error_) return tl::unexpected<Error>(*error_);
  return stats;
}

void Grid::check_config() const {
  const auto reject = [](const std::string& reason) { fail(errors::LaunchInvalid{.reason = reason}); };
  const Dim3 &g = config.grid, &c = config.cluster;
  if (config.threads == 0 || config.threads > kMaxThreads || config.threads % kWarpSize)
    reject(std::to_string(config.threads) + " threads per CTA: expected whole warps, at most " +
           std::to_string(kMaxThreads));
  if (config.shared_bytes > kMaxSharedBytes)
    reject(std::to_string(config.shared_bytes) + " bytes of shared memory: a CTA has at most " +
           std::to_string(kMaxSharedBytes));
  if (g.count() == 0 || g.count() >= (1u << (32 - kActorBits)) - 1) reject("grid " + text(g) + ": empty or too large");
  if (c.count() == 0 || c.count() > kMaxClusterSize || g.x % c.x || g.y % c.y || g.z % c.z)
    reject("cluster " + text(c) + " of grid " + text(g) + ": at most " + std::to_string(kMaxClusterSize) +
           " CTAs, and the grid must be made of whole clusters");
  if (config.registers * config.threads > kRegisterFile)
    reject(std::to_string(config.registers) + " registers in " + std::to_string(config.threads) + " threads: an SM has " +
           std::to_string(kRegisterFile));
}

void Grid::start_clusters() {
  const u32 size = config.cluster.count(), total = config.grid.count() / size;
  while (next_cluster_ < total && (resident_.empty() || resident_.size() + size <= config.resident_ctas)) {
    Cluster& cluster = clusters_.emplace_back();
    cluster.index = next_cluster_++;
    for (u32 rank = 0; rank < size; rank++) {
      Cta& cta = ctas_.emplace_back(*this, cluster, cluster.index * size + rank, rank);
      cluster.ctas.push_back(&cta);
      resident_.push_back(&cta);
      for (Thread& t : cta.threads) ready_.push_back(&t);
    }
  }
}

void Grid::schedule() {
  for (start_clusters(); !resident_.empty() && !error_; start_clusters()) step();
}

void Grid::step() {
  const bool busy = engines_busy();
  if (!ready_.empty() && !(busy && dice(kEngineFirst) == 0)) {
    if (dice(kRandomThread) == 0) std::swap(ready_.front(), ready_[dice(ready_.size())]);
    Thread* thread = ready_.front();
    ready_.pop_front();
    run_thread(*thread);
  } else if (busy) {
    step_engines();
  } else {
    fail_deadlock("no thread can run and nothing is in flight");
  }
}

void Grid::thread_main(void* argument) {
  Thread& thread = *static_cast<Thread*>(argument);
  Grid& grid = thread.cta->grid;
  try {
    grid.kernel_();
    grid.finish_thread(thread);
  } catch (const Fault& fault) {
    if (!grid.error_) grid.error_ = fault.error;
  } catch (const Cancelled&) {}
  thread.state = Thread::State::finished;
}

void Grid::run_thread(Thread& thread) {
  if (!thread.fiber.started()) thread.fiber.start(&Grid::thread_main, &thread);
  Cta& cta = *thread.cta;
  current = &thread;
  thread.fiber.resume();
  current = nullptr;
  if (cta.finished() && !error_) finish_cluster_member(cta.cluster);
}

void Grid::finish_thread(Thread& thread) {
  const auto in_flight = [&](const std::string& what, Location at) {
    fail(errors::ExitInFlight{.thread = actor_name(thread.actor), .what = what, .where = name(at)});
  };
  if (thread.wgmma.lost_fragment) in_flight("a wgmma whose registers went out of scope", thread.wgmma.lost_at);
  if (!thread.wgmma.in_flight.empty()) in_flight("a wgmma (no wgmma.wait_group)", thread.wgmma.last_at);
  check_copies_at_exit(thread);
  thread.state = Thread::State::finished;
  progress();
  thread.cta->running--;
  leave_cluster_barrier(thread);
  if (thread.cta->finished()) finish_cta(*thread.cta);
}

void Grid::finish_cta(Cta& cta) {
  for (const std::unique_ptr<Copy>& copy : copies.in_flight)
    for (const Copy::Target& target : copy->targets)
      if (target.cta == &cta)
        fail(errors::ExitInFlight{
            .thread = "CTA " + text(cta.id),
            .what = std::string(copy->instruction) + " into its shared memory, which no thread has waited for",
            .where = where(*copy->thread, copy->at)});
  for (const Mbarrier& b : cta.mbarriers.all)
    if (b.live && b.tx)
      fail(errors::MbarrierTransactionBytes{.barrier = describe(b),
                                            .where = "CTA " + text(cta.id) + " at its end",
                                            .phase = b.phase,
                                            .expected = b.expected,
                                            .landed = b.landed,
                                            .reason = "the CTA ends while the barrier still expects bytes"});
  for (const auto& [actor, time] : cta.remote_accesses) {
    const bool known = std::any_of(cta.threads.begin(), cta.threads.end(), [&, a = actor, t = time](const Thread& thread) {
      return time_of(thread.known.ordered, a) >= t;
    });
    if (!known) fail(errors::ClusterExitEarly{.cta = text(cta.id), .other = actor_name(actor)});
  }
}

// Frees what a cluster held when its last CTA has ended; its stores land first, since they refer to its threads.
void Grid::finish_cluster_member(Cluster& cluster) {
  if (!std::all_of(cluster.ctas.begin(), cluster.ctas.end(), [](const Cta* c) { return c->finished(); })) return;
  for (std::size_t i = 0; i < copies.in_flight.size();) {
    if (&copies.in_flight[i]->thread->cta->cluster == &cluster)
      complete_copy(*this, i);  // removes it once it has landed
    else
      i++;
  }
  for (Cta* cta : cluster.ctas) {
    cta->threads.clear();
    cta->shared.reset();
    cta->shadow = Shadow("shared memory", 0, false, false);
    cta->mbarriers = {};
    cta->warpgroups.clear();
    std::erase(resident_, cta);
  }
}

bool Grid::engines_busy() const { return !copies.in_flight.empty() || !busy_warpgroups.empty(); }

void Grid::step_engines() {
  progress();
  const u64 choice = dice(copies.in_flight.size() + busy_warpgroups.size());
  if (choice < copies.in_flight.size()) {
    complete_copy(*this, choice);
  } else {
    Warpgroup& warpgroup = *busy_warpgroups[choice - copies.in_flight.size()];
    execute_next(*this, warpgroup);
  }
}

// Unwinds the fibers that are left, so that what the kernel's and the emulator's functions own is given back.
void Grid::cancel() {
  cancelled_ = true;
  for (Cta& cta : ctas_)
    for (Thread& thread : cta.threads)
      if (thread.fiber.started() && !thread.fiber.finished()) {
        current = &thread;
        thread.fiber.resume();
        current = nullptr;
      }
}

// --- for the engines -------------------------------------------------------------------------------------------------

void Grid::block(Thread& thread, const Wait& wait) {
  thread.state = Thread::State::blocked;
  thread.wait = wait;
  stats.switches++;
  thread.fiber.suspend();
  if (cancelled_) throw Cancelled{};
}

void Grid::wake(Thread& thread) {
  if (thread.state != Thread::State::blocked) return;
  progress();
  thread.state = Thread::State::ready;
  ready_.push_back(&thread);
}

void Grid::yield(Thread& thread) {
  ready_.push_back(&thread);
  stats.switches++;
  thread.fiber.suspend();
  if (cancelled_) throw Cancelled{};
}

void Grid::poll(Thread& thread) {
  const u64 patience = 10000 + 100 * resident_.size() * config.threads;
  if (++polls_ > patience) fail_deadlock("every thread that can run asks for something that nothing will bring about");
  yield(thread);
}

u64 Grid::dice(u64 sides) {
  random_ ^= random_ << 13;
  random_ ^= random_ >> 7;
  random_ ^= random_ << 17;
  return (random_ * 0x2545F4914F6CDD1Du >> 33) % sides;
}

bool Grid::removed(const char* instruction, Location at) {
  if (config.record_sites) {
    const SyncSite site{instruction, at};
    std::vector<SyncSite>& sites = *config.record_sites;
    if (std::find(sites.begin(), sites.end(), site) == sites.end()) sites.push_back(site);
  }
  return config.remove_site && config.remove_site->at == at && config.remove_site->instruction == instruction;
}

Observer Grid::observer(const Thread& thread) const {
  Observer observer(thread.actor);
  observer.add(thread.actor, thread.time, thread.known, thread.knows_previous_grid);
  return observer;
}

Cta& Grid::shared_cta(Thread& thread, u32 address, bool own, const char* instruction, Location at) {
  const u32 rank = address >> kRankShift;
  Cluster& cluster = thread.cta->cluster;
  if (rank >= cluster.ctas.size() || (own && rank != thread.cta->rank))
    fail(errors::WrongSharedWindow{.instruction = instruction,
                                   .where = where(thread, at),
                                   .rank = rank,
                                   .own_rank = thread.cta->rank,
                                   .cluster_size = cluster.ctas.size()});
  Cta& cta = *cluster.ctas[rank];
  if (&cta == thread.cta) return cta;
  const char* absent = cta.finished() ? "has ended"
                       : !thread.known.ordered || !thread.known.ordered->knows_cta(cta.index)
                           ? "is not known to have started (no barrier.cluster yet)"
                           : nullptr;
  if (absent)
    fail(errors::ClusterPeerAbsent{.instruction = instruction, .where = where(thread, at), .rank = rank, .state = absent});
  return cta;
}

void Grid::check_bounds(Thread& thread, u32 address, u32 bytes, u32 alignment, const char* instruction, Location at) {
  const i64 offset = static_cast<i64>(address & ((1u << kRankShift) - 1)) - kSharedBase;
  if (offset < 0 || offset + bytes > config.shared_bytes)
    fail(errors::SharedOutOfBounds{.instruction = instruction,
                                   .where = where(thread, at),
                                   .offset = offset,
                                   .bytes = bytes,
                                   .size = config.shared_bytes});
  if (address % alignment)
    fail(errors::Misaligned{.instruction = instruction,
                            .where = where(thread, at),
                            .address = "shared memory, byte " + std::to_string(offset),
                            .alignment = alignment});
}

void* shared_storage(u64 size, Location at) {
  Thread& t = this_thread();
  Grid& grid = t.cta->grid;
  if (size > grid.config.shared_bytes)
    fail(errors::SharedOutOfBounds{.instruction = "shared_storage",
                                   .where = grid.where(t, at),
                                   .offset = 0,
                                   .bytes = size,
                                   .size = grid.config.shared_bytes});
  return t.cta->shared.get();
}

u32 smem_u32(const void* p, Location at) {
  Thread& t = this_thread();
  const std::ptrdiff_t offset = static_cast<const u8*>(p) - t.cta->shared.get();
  if (offset < 0 || offset > static_cast<std::ptrdiff_t>(t.cta->grid.config.shared_bytes))
    fail(errors::SharedOutOfBounds{.instruction = "cvta.to.shared",
                                   .where = t.cta->grid.where(t, at),
                                   .offset = offset,
                                   .bytes = 0,
                                   .size = t.cta->grid.config.shared_bytes});
  return static_cast<u32>(offset) + kSharedBase + (t.cta->rank << kRankShift);
}

void Grid::access_shared(Thread& thread, u32 address, u32 bytes, bool write, const char* instruction, Location at,
                         bool own) {
  Cta& cta = shared_cta(thread, address, own, instruction, at);
  check_bounds(thread, address, bytes, bytes, instruction, at);
  const Access access{.instruction = instruction,
                      .at = at,
                      .issuer = thread.actor,
                      .actor = thread.actor,
                      .time = thread.time,
                      .write = write};
  const Observer self = observer(thread);
  AccessCheck(*this, config.rules, access, {&self, 1})(cta.shadow, shared_offset(address), bytes);
  if (&cta != thread.cta) cta.note_remote_access(thread.actor, thread.time);
  if (write) progress();
}

// --- reports ---------------------------------------------------------------------------------------------------------

std::string Grid::actor_name(ActorId actor) const {
  const Cta& cta = ctas_[cta_of(actor)];
  const u32 index = index_of(actor);
  const std::string of = " of CTA " + text(cta.id);
  if (index >= config.threads) return cta.actor_names[index - config.threads] + of;
  return "thread " + std::to_string(index) + " (warp " + std::to_string(index / kWarpSize) + ", lane " +
         std::to_string(index % kWarpSize) + ")" + of;
}

// Consecutive threads that wait for the same are one entry.
std::string Grid::waiting_threads() const {
  std::string out;
  const auto same = [](const Thread& a, const Thread& b) {
    return a.state == b.state &&
           (a.state != Thread::State::blocked ||
            (a.wait.at == b.wait.at && a.wait.object == b.wait.object && a.wait.value == b.wait.value));
  };
  for (const Cta* cta : resident_) {
    out += out.empty() ? "CTA " : "; CTA ";
    out += text(cta->id) + ":";
    for (std::size_t i = 0, j; i < cta->threads.size(); i = j) {
      const Thread& t = cta->threads[i];
      for (j = i + 1; j < cta->threads.size() && same(t, cta->threads[j]); j++) {}
      out += i ? ", threads " : " threads ";
      out += std::to_string(i) + "-" + std::to_string(j - 1);
      if (t.state == Thread::State::finished)
        out += " have finished";
      else if (t.state == Thread::State::ready)
        out += " can run";
      else
        out += std::string(" wait in ") + t.wait.instruction + " at " + name(t.wait.at) +
               (t.wait.detail ? " for " + t.wait.detail(t) : "");
    }
    for (const Mbarrier& b : cta->mbarriers.all)
      if (b.live && !b.waiting.empty())
        out += "; " + describe(b) + " is in phase " + std::to_string(b.phase) + ", " + std::to_string(b.pending) + " of " +
               std::to_string(b.count) + " arrivals missing, " + std::to_string(b.landed) + " of " +
               std::to_string(b.expected) + " bytes landed";
  }
  return out;
}

void Grid::fail_deadlock(const char* reason) const {
  fail(errors::Deadlock{.reason = reason, .waiting = waiting_threads()});
}

}  // namespace iso::emu
