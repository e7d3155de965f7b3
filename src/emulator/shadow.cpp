#include "emulator/shadow.h"

#include <algorithm>

#include "emulator/fault.h"

namespace iso::emu {

u16 Reporter::site(Location at) {
  u16& recent = recent_[static_cast<u32>(at.line) % recent_.size()];
  if (recent < sites_.size() && sites_[recent] == at) return recent;
  std::size_t i = 0;
  while (i < sites_.size() && !(sites_[i] == at)) i++;
  if (i == sites_.size()) sites_.push_back(at);
  return recent = static_cast<u16>(i);
}

// --- Observer --------------------------------------------------------------------------------------------------------

void Observer::add(ActorId actor, u32 time, const Knowledge& known, bool knows_previous_grid) {
  own_[actor - first_] = time;
  previous_grid_ = previous_grid_ || knows_previous_grid;
  const auto same = [&](const Knowledge& k) {
    return k.ordered == known.ordered && k.async_shared == known.async_shared && k.async_global == known.async_global;
  };
  if (!known_.ordered && !known_.async_shared && !known_.async_global)
    known_ = known;
  else if (!same(known_) && std::none_of(more_.begin(), more_.end(), same))
    more_.push_back(known);
}

bool Observer::knows(ActorId actor, u32 time) const {
  if (actor == kHost) return true;
  if (time == kInFlight) return false;
  if (actor == kPreviousGrid) return previous_grid_;
  if (actor >= first_ && actor < first_ + static_cast<u32>(width_) && time <= own_[actor - first_]) return true;
  if (time_of(known_.ordered, actor) >= time) return true;
  return std::any_of(more_.begin(), more_.end(), [&](const Knowledge& k) { return time_of(k.ordered, actor) >= time; });
}

bool Observer::made_visible(ActorId actor, u32 time, bool global) const {
  const auto visible = [&](const Knowledge& k) { return time_of(global ? k.async_global : k.async_shared, actor) >= time; };
  return actor == kHost || actor == kPreviousGrid || visible(known_) || std::any_of(more_.begin(), more_.end(), visible);
}

// --- Shadow ----------------------------------------------------------------------------------------------------------

Shadow::Shadow(std::string space, u64 size, bool global, bool initialised)
    : space_(std::move(space)),
      size_(size),
      global_(global),
      initialised_(initialised),
      pages_((size + kGranuleBytes * kPageGranules - 1) / (kGranuleBytes * kPageGranules)) {}

Shadow::~Shadow() = default;

Shadow::Granule& Shadow::granule(u64 index) {
  std::unique_ptr<Granule[]>& page = pages_[index / kPageGranules];
  if (!page) {
    page.reset(new Granule[kPageGranules]);
    if (initialised_)
      for (u32 i = 0; i < kPageGranules; i++) page[i].whole.flags = kInitialised;
  }
  return page[index % kPageGranules];
}

void Shadow::repeat(Pieces& pieces, u32 from, u32 count, u32 to) {
  for (u32 i = to; i < to + count; i++) {
    if (i == from) continue;
    pieces[i] = pieces[from];
    if (!pieces[from].more) continue;
    std::vector<Epoch> list = readers_[pieces[from].more];
    pieces[i].more = 0;
    readers(pieces[i]) = std::move(list);
  }
}

void Shadow::split(Granule& granule, u64 offset, u64 size) {
  const u32 wanted = offset % 4 || size % 4 ? 2 : 4;
  if (!granule.split) {
    if (free_pieces_.empty()) {
      granule.split = static_cast<u32>(pieces_.size());
      pieces_.emplace_back();
    } else {
      granule.split = free_pieces_.back();
      free_pieces_.pop_back();
    }
    pieces_[granule.split][0] = granule.whole;
    granule.piece_bytes = wanted;
    repeat(pieces_[granule.split], 0, kGranuleBytes / wanted, 0);
  } else if (wanted < granule.piece_bytes) {
    granule.piece_bytes = wanted;
    Pieces& pieces = pieces_[granule.split];
    for (u32 i = 4; i-- > 0;) {  // from the last: piece i moves to where nothing is needed any more
      pieces[2 * i] = pieces[i];
      repeat(pieces, 2 * i, 2, 2 * i);
    }
  }
}

void Shadow::join(Granule& granule) {
  Pieces& pieces = pieces_[granule.split];
  for (u32 i = 0; i < kGranuleBytes / granule.piece_bytes; i++) clear_readers(pieces[i]);
  granule.whole = pieces[0];
  free_pieces_.push_back(granule.split);
  granule.split = 0;
}

std::vector<Shadow::Epoch>& Shadow::readers(Record& record) {
  if (!record.more) {
    if (free_readers_.empty()) {
      record.more = static_cast<u32>(readers_.size());
      readers_.emplace_back();
    } else {
      record.more = free_readers_.back();
      free_readers_.pop_back();
    }
    readers_[record.more].clear();
    if (record.flags & kHasReader) readers_[record.more].push_back(record.reader);
    record.flags |= kHasReader;
  }
  return readers_[record.more];
}

void Shadow::clear_readers(Record& record) {
  if (record.more) free_readers_.push_back(record.more);
  record.more = 0;
  record.flags &= static_cast<u8>(~kHasReader);
}

template <class F>
void Shadow::for_each_record(u64 offset, u64 size, F f) {
  for (u64 at = offset; at < offset + size;) {
    Granule& g = granule(at / kGranuleBytes);
    const u64 end = std::min(at / kGranuleBytes * kGranuleBytes + kGranuleBytes, offset + size);
    if (end - at == kGranuleBytes && !g.split) {
      f(g.whole, at);
    } else {
      split(g, at, end - at);
      for (u64 piece = at; piece < end; piece += g.piece_bytes)
        f(pieces_[g.split][piece % kGranuleBytes / g.piece_bytes], piece);
    }
    at = end;
  }
}

void Shadow::mark_barrier(u32 offset, bool live) {
  for_each_record(offset, 8,
                  [&](Record& r, u64) { r.flags = static_cast<u8>(live ? r.flags | kBarrier : r.flags & ~kBarrier); });
}

void Shadow::set_time(u64 offset, u64 size, ActorId writer, u32 time) {
  for_each_record(offset, size, [&](Record& r, u64) {
    if (r.writer == writer && r.written == kInFlight) r.written = time;
  });
}

void Shadow::forget_launch() {
  const auto age = [&](Record& r) {
    const bool touched = r.writer != kHost || (r.flags & kHasReader);
    clear_readers(r);
    if (!touched) return;
    r.writer = kPreviousGrid;
    r.written = 1;
  };
  for (std::unique_ptr<Granule[]>& page : pages_)
    for (u32 i = 0; page && i < kPageGranules; i++) {
      if (page[i].split)
        for (u32 p = 0; p < kGranuleBytes / page[i].piece_bytes; p++) age(pieces_[page[i].split][p]);
      else
        age(page[i].whole);
    }
}

// --- AccessCheck -----------------------------------------------------------------------------------------------------

AccessCheck::AccessCheck(Reporter& reporter, const Rules& rules, const Access& access, std::span<const Observer> observers)
    : reporter_(reporter), rules_(rules), access_(access), observers_(observers), site_(reporter.site(access.at)) {}

void AccessCheck::operator()(Shadow& shadow, u64 offset, u64 size) {
  shadow.for_each_record(offset, size, [&](Record& r, u64 at) { record(shadow, r, at); });
  if (!access_.write || access_.atomic) return;
  constexpr u64 kGranule = Shadow::kGranuleBytes;
  for (u64 at = (offset + kGranule - 1) / kGranule * kGranule; at + kGranule <= offset + size; at += kGranule)
    if (Shadow::Granule& g = shadow.granule(at / kGranule); g.split) shadow.join(g);
}

void AccessCheck::record(Shadow& shadow, Record& r, u64 offset) {
  const bool reads = !access_.write || access_.atomic;
  if (r.flags & Shadow::kBarrier)
    fail(errors::BarrierOverwritten{.instruction = access_.instruction,
                                    .where = reporter_.where(access_.issuer, access_.at),
                                    .address = address(shadow, offset)});
  if (r.flags & Shadow::kInitialised)
    check_writer(shadow, r, offset);
  else if (reads)
    fail(errors::UninitialisedRead{.instruction = access_.instruction,
                                   .where = reporter_.where(access_.issuer, access_.at),
                                   .address = address(shadow, offset)});
  if (r.flags & Shadow::kHasReader) check_readers(shadow, r, offset);
  if (access_.write && !access_.atomic) {
    shadow.clear_readers(r);
    r.writer = access_.actor;
    r.written = access_.time;
    r.write_site = site_;
    r.flags = static_cast<u8>(Shadow::kInitialised | (access_.async ? Shadow::kAsyncWrite : 0));
    r.swizzle = access_.swizzle;
    return;
  }
  if (access_.swizzle && r.swizzle && access_.swizzle != r.swizzle) check_swizzle(r, offset);
  add_reader(shadow, r,
             access_.write    ? Shadow::Use::atomic_write
             : access_.atomic ? Shadow::Use::atomic_read
                              : Shadow::Use::read);
}

void AccessCheck::check_writer(const Shadow& shadow, const Record& r, u64 offset) {
  const bool by_async = r.flags & Shadow::kAsyncWrite;
  if (r.writer == known_writer_ && r.written == known_written_ && by_async == known_writer_async_) return;
  if (r.written == kInFlight) {
    if (access_.write) fail_order(shadow, offset, r.writer, r.written, r.write_site, true);
    fail(errors::ReadInFlight{.instruction = access_.instruction,
                              .where = reporter_.where(access_.issuer, access_.at),
                              .address = address(shadow, offset),
                              .other = other(r.writer, r.write_site)});
  }
  for (const Observer& observer : observers_) {
    if (!observer.knows(r.writer, r.written)) fail_order(shadow, offset, r.writer, r.written, r.write_site, true);
    const bool between_ctas =
        by_async && shadow.global_ && rules_.async_proxy_across_ctas && cta_of(r.writer) != cta_of(access_.actor);
    if (access_.async && (!by_async || between_ctas) && !observer.made_visible(r.writer, r.written, shadow.global_))
      fail(errors::ProxyFenceMissing{.instruction = access_.instruction,
                                     .where = reporter_.where(access_.issuer, access_.at),
                                     .address = address(shadow, offset),
                                     .other = other(r.writer, r.write_site)});
  }
  known_writer_ = r.writer;
  known_written_ = r.written;
  known_writer_async_ = by_async;
}

// Whether this access needs to come after an earlier reader or atomic.
bool AccessCheck::conflicts(Shadow::Use earlier) const {
  if (access_.atomic) return access_.write && earlier == Shadow::Use::read;
  return access_.write || earlier == Shadow::Use::atomic_write;
}

bool AccessCheck::all_know(ActorId actor, u32 time) {
  if (actor == asked_actor_ && time == asked_time_) return asked_known_;
  asked_actor_ = actor;
  asked_time_ = time;
  asked_known_ = std::all_of(observers_.begin(), observers_.end(),
                             [&](const Observer& observer) { return observer.knows(actor, time); });
  return asked_known_;
}

void AccessCheck::check_readers(Shadow& shadow, const Record& r, u64 offset) {
  const auto check = [&](const Epoch& e) {
    if (conflicts(e.use) && !all_know(e.actor, e.time))
      fail_order(shadow, offset, e.actor, e.time, e.site, e.use == Shadow::Use::atomic_write);
  };
  if (!r.more) return check(r.reader);
  for (const Epoch& e : shadow.readers_[r.more]) check(e);
}

void AccessCheck::add_reader(Shadow& shadow, Record& r, Shadow::Use use) {
  const Epoch mine{access_.actor, access_.time, site_, use};
  if (!r.more) {
    // A reader that is known to this one needs no record of its own: whoever knows this one knows that one.
    const bool replaces =
        !(r.flags & Shadow::kHasReader) ||
        (r.reader.use == use && (r.reader.actor == access_.actor || all_know(r.reader.actor, r.reader.time)));
    if (replaces) {
      r.reader = mine;
      r.flags |= Shadow::kHasReader;
      return;
    }
  }
  // Looking for an older entry of the same actor costs more than a second entry, unless the list grows without bound.
  constexpr std::size_t kLookBack = 4, kLong = 256;
  std::vector<Epoch>& readers = shadow.readers(r);
  const std::size_t size = readers.size(), first = size < kLong && size > kLookBack ? size - kLookBack : 0;
  for (std::size_t i = first; i < size; i++)
    if (readers[i].actor == mine.actor && readers[i].use == mine.use) {
      readers[i] = mine;
      return;
    }
  readers.push_back(mine);
}

void AccessCheck::check_swizzle(const Record& r, u64 offset) const {
  static constexpr const char* kModes[] = {"?", "no swizzle", "32-byte swizzle", "64-byte swizzle", "128-byte swizzle"};
  fail(errors::SwizzleMismatch{.instruction = access_.instruction,
                               .where = reporter_.where(access_.issuer, access_.at),
                               .offset = static_cast<i64>(offset),
                               .mode = kModes[access_.swizzle],
                               .writer = other(r.writer, r.write_site),
                               .written_mode = kModes[r.swizzle]});
}

std::string AccessCheck::address(const Shadow& shadow, u64 offset) const {
  return shadow.space() + ", byte " + std::to_string(offset);
}

std::string AccessCheck::other(ActorId actor, u16 site) const {
  if (actor == kHost) return "the host, before the launch";
  if (actor == kPreviousGrid) return "the previous grid (no griddepcontrol.wait since)";
  return reporter_.actor_name(actor) + " at " + name(reporter_.site(site));
}

void AccessCheck::fail_order(const Shadow& shadow, u64 offset, ActorId actor, u32 time, u16 site, bool earlier_wrote) {
  const std::string where = reporter_.where(access_.issuer, access_.at), at = address(shadow, offset);
  const std::string who = other(actor, site) + (time == kInFlight ? ", still in flight" : "");
  if (!access_.write || (access_.atomic && earlier_wrote))
    fail(errors::RaceReadAfterWrite{.instruction = access_.instruction, .where = where, .address = at, .other = who});
  if (earlier_wrote)
    fail(errors::RaceWriteAfterWrite{.instruction = access_.instruction, .where = where, .address = at, .other = who});
  fail(errors::RaceWriteAfterRead{.instruction = access_.instruction, .where = where, .address = at, .other = who});
}

}  // namespace iso::emu
