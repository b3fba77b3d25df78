#include "zones/zone_file.h"

#include <filesystem>

#include "base/text.h"
#include "zones/rdata_reader.h"

namespace idetcd::zones {

namespace {

// What holds within a file from one entry to the next.
struct State {
  dns::Name origin;
  WireName owner{};
};

// Of all files of a zone.
struct Ttls {
  std::optional<uint32_t> stated;   // $TTL
  std::optional<uint32_t> last;     // of the record before
  std::optional<uint32_t> minimum;  // the SOA's
};

// The value of a variable of $GENERATE: `$`, or `${OFFSET[,WIDTH[,BASE]]}`.
struct Variable {
  int32_t offset = 0;
  unsigned width = 0;
  char base = 'd';
};

std::optional<Variable> parseVariable(std::string_view text) {
  Variable variable;
  const size_t comma = text.find(',');
  const auto offset = parseNumber<int32_t>(text.substr(0, comma));
  if (!offset) return std::nullopt;
  variable.offset = *offset;
  if (comma == text.npos) return variable;
  text.remove_prefix(comma + 1);
  const size_t second = text.find(',');
  const auto width = parseNumber<unsigned>(text.substr(0, second));
  if (!width || *width > dns::kMaxNameLength) return std::nullopt;
  variable.width = *width;
  if (second == text.npos) return variable;
  text.remove_prefix(second + 1);
  if (text.size() != 1 || std::string_view("doxXnN").find(text[0]) == std::string_view::npos) return std::nullopt;
  variable.base = text[0];
  return variable;
}

// START-STOP[/STEP] of $GENERATE, from 0 to 2^31 - 1.
struct Range {
  int64_t start;
  int64_t stop;
  int64_t step;
};

std::optional<Range> parseRange(std::string_view text) {
  const size_t dash = std::min(text.find('-'), text.size());
  const size_t slash = std::min(text.find('/'), text.size());
  if (dash >= slash) return std::nullopt;
  const auto start = parseNumber<int32_t>(text.substr(0, dash));
  const auto stop = parseNumber<int32_t>(text.substr(dash + 1, slash - dash - 1));
  if (!start || !stop || *start > *stop) return std::nullopt;
  const auto step = slash == text.size() ? std::optional<int32_t>(1) : parseNumber<int32_t>(text.substr(slash + 1));
  if (!step || *step <= 0) return std::nullopt;
  return Range{*start, *stop, *step};
}

// The last digit first, a label each; as many characters as `width` at least.
std::string nibbles(uint32_t value, unsigned width, bool upper) {
  std::string text;
  while (value != 0 || text.empty() || text.size() < width) {
    if (!text.empty()) text += '.';
    text += (upper ? "0123456789ABCDEF" : "0123456789abcdef")[value & 15];
    value >>= 4;
    if (value == 0 && text.size() + 1 >= width) break;
  }
  return text;
}

// A negative value has the digits of its 32 bits where the base is another one than ten, as in BIND.
std::string format(const Variable& variable, int32_t value) {
  const auto bits = static_cast<uint32_t>(value);
  switch (variable.base) {
    case 'o':
      return fmt::format("{:0{}o}", bits, variable.width);
    case 'x':
      return fmt::format("{:0{}x}", bits, variable.width);
    case 'X':
      return fmt::format("{:0{}X}", bits, variable.width);
    case 'n':
    case 'N':
      return nibbles(bits, variable.width, variable.base == 'N');
    default:
      return fmt::format("{:0{}}", value, variable.width);
  }
}

// `text` with the variables replaced; nothing: it is wrong, or a value is above 2^31 - 1.
std::optional<std::string> expand(std::string_view text, int64_t iteration) {
  std::string out;
  for (size_t pos = 0; pos < text.size(); ++pos) {
    if (text[pos] == '\\' && pos + 1 < text.size()) {
      if (text[pos + 1] != '$') out += text[pos];
      out += text[++pos];
    } else if (text[pos] != '$') {
      out += text[pos];
    } else if (pos + 1 < text.size() && text[pos + 1] == '$') {  // another way to write a dollar sign
      out += text[++pos];
    } else {
      Variable variable;
      if (pos + 1 < text.size() && text[pos + 1] == '{') {
        const size_t end = text.find('}', pos);
        const auto parsed = end == text.npos ? std::nullopt : parseVariable(text.substr(pos + 2, end - pos - 2));
        if (!parsed) return std::nullopt;
        variable = *parsed;
        pos = end;
      }
      const int64_t value = iteration + variable.offset;
      if (value > std::numeric_limits<int32_t>::max()) return std::nullopt;
      out += format(variable, static_cast<int32_t>(value));
    }
  }
  return out;
}

// `\"` becomes a quotation mark.
std::string withQuotes(std::string_view text) {
  std::string out;
  for (size_t pos = 0; pos < text.size(); ++pos) {
    const bool escapes = text[pos] == '\\' && pos + 1 < text.size();
    if (!escapes || text[pos + 1] != '"') out += text[pos];
    if (escapes) out += text[++pos];
  }
  return out;
}

class FileReader {
 public:
  FileReader(const std::string& path, ZoneBuilder& builder, std::vector<ReadFile>& files)
      : folder_(std::filesystem::path(path).parent_path()), builder_(builder), files_(files) {}

  // `target`: where `path` leads to.
  Result<void> read(const std::string& path, const std::string& target, const dns::Name& origin,
                    const WireName& owner) {
    auto stamp = FileStamp::of(path);
    const size_t index = files_.size();
    files_.push_back({.path = path, .stamp = stamp});
    const auto content = readFile(target, kMaxZoneFileSize);
    if (!content) return fail(fmt::format("{}: {}", path, content.error().message), content.error().code);
    files_[index].content_hash = hashBytes(content->data(), content->size(), 0);
    files_[index].was_read = true;
    State state{origin, owner};
    MasterScanner scanner(*content);
    const uint16_t file = builder_.addFile(path);
    builder_.reserve(content->size());
    for (;;) {
      const Result<bool> more = scanner.next();
      Result<void> done;
      if (!more)
        done = tl::unexpected(more.error());
      else if (*more)
        done = readEntry(scanner, state, {file, scanner.line()});
      else
        return {};
      if (done) continue;
      if (is_placed_) return done;
      is_placed_ = true;
      return fail(fmt::format("{}: {}", builder_.describe({file, scanner.line()}), done.error().message));
    }
  }

 private:
  Result<void> readEntry(const MasterScanner& scanner, State& state, FilePlace place) {
    std::span<const Word> words = scanner.words();
    const Word& first = words.front();
    if (first.text.starts_with('$') && !first.quoted && !scanner.isOwnerBlank())
      return readControl(words, state, place);
    if (!scanner.isOwnerBlank()) {
      if (auto named = readName(first.text, state.origin, true, state.owner); !named) return named;
      words = words.subspan(1);
    } else if (state.owner.size == 0) {
      return fail("the first record has no owner");
    }
    return readRecord(words, state.owner.span(), state, place);
  }

  Result<void> readRecord(std::span<const Word> words, std::span<const uint8_t> owner, const State& state,
                          FilePlace place) {
    const auto head = readRecordHead(words);
    if (!head) return tl::unexpected(head.error());
    std::optional<uint32_t> ttl = head->ttl;
    words = head->type_and_data;
    const auto type = typeOf(words.front().text);
    if (!type) return fail(fmt::format("unknown type '{}'", printable(words.front().text)));
    if (!isZoneType(*type))
      return fail(fmt::format("type {} is not for zones", dns::kTypeNames.toString(*type)));
    if (auto read = readRdata(*type, words.subspan(1), state.origin, rdata_); !read) return read;
    if (*type == dns::code(dns::RrType::kSoa)) ttls_.minimum = effectiveTtl(dns::load32(rdata_.data() + rdata_.size() - 4));
    if (!ttl) ttl = ttls_.stated ? ttls_.stated : ttls_.last ? ttls_.last : ttls_.minimum;
    if (!ttl) return fail("there is no TTL: write $TTL SECONDS before the first record");
    ttls_.last = ttl;
    return builder_.add({owner, *type, *ttl, rdata_}, place);
  }

  std::optional<uint16_t> typeOf(std::string_view word) {
    if (last_type_ && word == last_type_word_) return last_type_;
    last_type_ = dns::kTypeNames.parse(word);
    last_type_word_ = word;
    return last_type_;
  }

  Result<void> readControl(std::span<const Word> words, State& state, FilePlace place) {
    std::string name(words.front().text);
    std::ranges::transform(name, name.begin(),
                           [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; });
    if (name == "$ORIGIN") {
      if (words.size() != 2) return fail("write: $ORIGIN NAME");
      WireName origin;
      if (auto read = readName(words[1].text, state.origin, true, origin); !read) return read;
      state.origin = dns::Name::fromWire(origin.span());
      return {};
    }
    if (name == "$TTL") {
      const auto ttl = words.size() == 2 ? parseTtl(words[1].text) : std::nullopt;
      if (!ttl) return fail("write: $TTL SECONDS, like 3600 or 1h");
      ttls_.stated = effectiveTtl(*ttl);
      return {};
    }
    if (name == "$INCLUDE") return include(words, state);
    if (name == "$GENERATE") return generate(words, state, place);
    return fail(fmt::format("unknown '{}'", printable(words.front().text)));
  }

  // RFC 1035 §5.1: origin and owner of this file are as before, afterwards.
  Result<void> include(std::span<const Word> words, const State& state) {
    if (words.size() < 2 || words.size() > 3) return fail("write: $INCLUDE FILE [ORIGIN]");
    if (depth_ == kMaxIncludes || files_.size() >= 16 * kMaxIncludes) return fail("too many files are included");
    WireName origin;
    origin.assign(state.origin.wire());
    if (words.size() == 3) {
      if (auto read = readName(words[2].text, state.origin, true, origin); !read) return read;
    }
    const auto path = std::filesystem::path(words[1].text);
    const std::string named = (path.is_absolute() ? path : folder_ / path).string();
    std::error_code base_error;
    std::error_code error;
    const auto base = std::filesystem::weakly_canonical(folder_.empty() ? "." : folder_, base_error);
    const auto target = std::filesystem::weakly_canonical(named, error);
    const auto [end, unused] = std::ranges::mismatch(base, target);
    if (base_error || error || base.empty() || end != base.end())
      return fail(fmt::format("'{}' is outside of the zone file's folder", printable(words[1].text)));
    ++depth_;
    last_type_.reset();  // its word is of this file
    // What was checked is read; what is watched may be a link to it, which may lead elsewhere later.
    const std::string watched = FileStamp::of(named) ? named : target.string();
    auto done = read(watched, target.string(), dns::Name::fromWire(origin.span()), state.owner);
    last_type_.reset();
    --depth_;
    return done;
  }

  // $GENERATE START-STOP[/STEP] OWNER [TTL] [CLASS] TYPE DATA
  Result<void> generate(std::span<const Word> words, const State& state, FilePlace place) {
    if (words.size() < 5) return fail("write: $GENERATE START-STOP[/STEP] OWNER [TTL] [CLASS] TYPE DATA");
    const auto range = parseRange(words[1].text);
    if (!range) return fail(fmt::format("'{}' is no START-STOP[/STEP]", printable(words[1].text)));
    if ((range->stop - range->start) / range->step >= static_cast<int64_t>(kMaxGenerated))
      return fail(fmt::format("more than {} records", kMaxGenerated));
    for (int64_t i = range->start; i <= range->stop; i += range->step) {
      if (auto done = generateOne(words.subspan(2), i, state, place); !done) return done;
    }
    return {};
  }

  Result<void> generateOne(std::span<const Word> words, int64_t iteration, const State& state, FilePlace place) {
    std::vector<std::string> texts;
    texts.reserve(words.size());
    for (const Word& word : words) {
      auto text = expand(word.text, iteration);
      if (!text) return fail(fmt::format("'{}' is no template of $GENERATE for {}", printable(word.text), iteration));
      texts.push_back(std::move(*text));
    }
    std::vector<Word> expanded;
    for (size_t i = 0; i < texts.size(); ++i) expanded.push_back({texts[i], words[i].quoted});
    // As BIND reads it, one word in quotes is all of DATA: MX "10 mail$", TXT "a \"b $\"".
    const Word& before_last = words[words.size() - 2];
    const bool is_quoted = words.back().quoted && !before_last.quoted && dns::kTypeNames.parse(before_last.text).has_value();
    const std::string text = is_quoted ? withQuotes(texts.back()) : std::string();
    MasterScanner data(text);
    if (is_quoted) {
      if (const auto scanned = data.next(); !scanned) return tl::unexpected(scanned.error());
      expanded.pop_back();
      expanded.insert(expanded.end(), data.words().begin(), data.words().end());
    }
    WireName owner;
    if (auto named = readName(texts.front(), state.origin, true, owner); !named) return named;
    last_type_.reset();  // its word may be of the iteration before
    auto done = readRecord(std::span(expanded).subspan(1), owner.span(), state, place);
    last_type_.reset();
    return done;
  }

  const std::filesystem::path folder_;
  ZoneBuilder& builder_;
  std::vector<ReadFile>& files_;
  Ttls ttls_;
  std::vector<uint8_t> rdata_;
  std::string_view last_type_word_;
  std::optional<uint16_t> last_type_;
  size_t depth_ = 0;
  bool is_placed_ = false;  // an error has its place
};

}  // namespace

Result<void> readZoneFile(const std::string& path, ZoneBuilder& builder, std::vector<ReadFile>& files) {
  return FileReader(path, builder, files).read(path, path, builder.origin(), WireName{});
}

}  // namespace idetcd::zones
