#include "interactions.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <unordered_map>

#include <fmt/format.h>

#include "hash.h"

namespace iso::tool {
namespace {

constexpr const char* kColumns[] = {"user_id", "item_id", "timestamp", "rating"};
constexpr int kUser = 0, kItem = 1, kTime = 2, kRating = 3, kNumColumns = 4;
constexpr int kRequiredColumns = 3;
constexpr double kMaxRating = 1e6;

std::vector<std::string_view> split(std::string_view line) {
  std::vector<std::string_view> fields;
  for (std::size_t begin = 0;;) {
    const std::size_t tab = line.find('\t', begin);
    fields.push_back(line.substr(begin, tab == line.npos ? line.npos : tab - begin));
    if (tab == line.npos) return fields;
    begin = tab + 1;
  }
}

// Text of the file in a message: short, printable.
std::string shown(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 40)) out += c >= ' ' && c <= '~' ? c : '?';
  return text.size() > 40 ? out + "..." : out;
}

bool parse_number(std::string_view text, double& value) {
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  return code == std::errc() && end == text.data() + text.size() && std::isfinite(value);
}

// Gives each name a number in the order of first appearance.
class NameTable {
 public:
  explicit NameTable(std::vector<std::string>& names) : names_(names) {}
  u32 number(std::string_view name) {
    const auto [place, fresh] = numbers_.try_emplace(std::string(name), static_cast<u32>(names_.size()));
    if (fresh) names_.emplace_back(name);
    return place->second;
  }

 private:
  std::vector<std::string>& names_;
  std::unordered_map<std::string, u32> numbers_;
};

// Lines of a text, without their ends (\n or \r\n).
class Lines {
 public:
  explicit Lines(std::string_view text) : rest_(text) {
    if (rest_.substr(0, 3) == "\xef\xbb\xbf") rest_.remove_prefix(3);
  }
  bool next(std::string_view& line) {
    if (rest_.empty()) return false;
    const std::size_t end = rest_.find('\n');
    line = rest_.substr(0, end);
    rest_.remove_prefix(end == rest_.npos ? rest_.size() : end + 1);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    ++number_;
    return true;
  }
  i64 number() const { return number_; }

 private:
  std::string_view rest_;
  i64 number_ = 0;
};

}  // namespace

Expected<InteractionLog> parse_interactions(const std::string& file, std::string_view text) {
  Lines lines(text);
  std::string_view line;
  if (!lines.next(line)) return raise(errors::InteractionsEmpty{.path = file, .reason = "the file is empty"});
  const auto bad_line = [&](const std::string& reason) {
    return raise(errors::InteractionsLine{.path = file, .line = lines.number(), .reason = reason});
  };
  const auto bad_field = [&](int column, std::string_view got, const char* expected) {
    return bad_line(fmt::format("{} is \"{}\", expected {}", kColumns[column], shown(got), expected));
  };
  const std::vector<std::string_view> header = split(line);
  int place[kNumColumns] = {-1, -1, -1, -1};
  for (std::size_t n = 0; n < header.size(); ++n)
    for (int column = 0; column < kNumColumns; ++column)
      if (header[n].substr(0, header[n].find(':')) == kColumns[column] && place[column] < 0)
        place[column] = static_cast<int>(n);
  for (int column = 0; column < kRequiredColumns; ++column)
    if (place[column] < 0)
      return bad_line(fmt::format("the header has no column {}: \"{}\"", kColumns[column], shown(line)));

  InteractionLog log;
  NameTable users(log.users), items(log.items);
  while (lines.next(line)) {
    if (line.empty()) continue;
    if (line.size() > kMaxInteractionLine)
      return bad_line(fmt::format("the line has {} bytes, more than the limit {}", line.size(), kMaxInteractionLine));
    if (log.events.size() == kMaxInteractions) return bad_line(fmt::format("more than {} interactions", kMaxInteractions));
    const std::vector<std::string_view> fields = split(line);
    if (fields.size() != header.size())
      return bad_line(fmt::format("{} tab-separated fields, but the header has {}", fields.size(), header.size()));

    const auto field = [&](int column) { return fields[static_cast<std::size_t>(place[column])]; };
    for (const int column : {kUser, kItem})
      if (field(column).empty()) return bad_field(column, "", "a name");
    Interaction event;
    double rating = 0;
    if (!parse_number(field(kTime), event.time)) return bad_field(kTime, field(kTime), "a finite number");
    // Ratings become whole numbers of halves (docs/formats.md).
    if (place[kRating] >= 0 && (!parse_number(field(kRating), rating) || std::abs(rating) > kMaxRating))
      return bad_field(kRating, field(kRating), "a number from -1e6 to 1e6");
    event.rating = static_cast<float>(rating);
    event.user = users.number(field(kUser));
    event.item = items.number(field(kItem));
    log.events.push_back(event);
  }
  if (log.events.empty())
    return raise(errors::InteractionsEmpty{.path = file, .reason = "the file ends after its header line"});
  return log;
}

Expected<InteractionLog> read_interactions(const std::string& path) {
  const auto unreadable = [&](const char* reason) { return raise(errors::FileOpen{.path = path, .reason = reason}); };
  // Not a device: /dev/zero has no end. Asked before opening, which waits for the other end of a pipe.
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return unreadable(std::strerror(errno));
  if (!S_ISREG(info.st_mode) && !S_ISFIFO(info.st_mode)) return unreadable("neither a regular file nor a pipe");
  std::FILE* const stream = std::fopen(path.c_str(), "rb");
  if (stream == nullptr) return unreadable(std::strerror(errno));
  std::string text;
  char chunk[65536];
  std::size_t got = 0;
  while ((got = std::fread(chunk, 1, sizeof chunk, stream)) > 0) text.append(chunk, got);
  const bool good = std::ferror(stream) == 0;
  std::fclose(stream);
  if (!good) return unreadable("reading failed");
  return parse_interactions(path, text);
}

InteractionLog generate_interactions(u32 users, u64 seed) {
  // Interactions per user at every tenth of the users, 0 % to 100 %; straight lines between.
  static constexpr u64 kLengths[] = {20, 23, 29, 38, 50, 65, 93, 128, 172, 245, 737};
  constexpr u32 kItems = 1682;
  InteractionLog log;
  for (u32 item = 0; item < kItems; ++item) log.items.push_back(std::to_string(item + 1));
  for (u32 user = 0; user < users; ++user) {
    log.users.push_back(std::to_string(user + 1));
    HashStream random(hash_of(seed, user));
    const u64 tenth = random.below(10), within = random.below(1000);
    // The last tenth rises steeply towards the few longest.
    const u64 share = tenth == 9 ? within * within / 1000 * within / 1000 : within;
    const u64 length = kLengths[tenth] + (kLengths[tenth + 1] - kLengths[tenth]) * share / 1000;
    std::vector<bool> met(kItems, false);
    u64 time = 874'000'000 + random.below(19'000'000);
    for (u64 n = 0; n < length;) {
      // Uniform^2: the first tenth of the catalogue draws a third of the interactions.
      const u64 u = random.below(1u << 16);
      const u32 item = static_cast<u32>((u * u >> 16) * kItems >> 16);
      if (met[item]) continue;
      met[item] = true;
      time += random.below(600);
      const u64 r = random.below(100);
      const float rating = r < 6 ? 1.f : r < 17 ? 2.f : r < 44 ? 3.f : r < 78 ? 4.f : 5.f;
      log.events.push_back({user, item, rating, static_cast<double>(time)});
      ++n;
    }
  }
  return log;
}

}  // namespace iso::tool
