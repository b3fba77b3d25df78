#include "zones/rdata_reader.h"

#include "base/ip_address.h"
#include "base/text.h"
#include "dns/wire.h"
#include "zones/location.h"
#include "zones/service_parameters.h"
#include "zones/text_data.h"

namespace idetcd::zones {

namespace {

using dns::RrType;

constexpr size_t kMaxRdata = 65535;

// A type's fields, a character each. Those of a capital letter but for A, I, L and N take all words that are left, and so do
// i and p.
//
//   1 2 4  a number of as many bytes         n N  a name; N keeps its case
//   a A L  IPv4, IPv6, eight bytes as L64    s    a character-string
//   S      character-strings, at least one   Q    bytes without a length
//   X B    hex and base64                    M    a bitmap of types
//   h H    salt in hex, hash in base32hex    t    a TTL
//   d      a time                            T    a type
//   g c    numbers of algorithms and certificates, or their mnemonics
//   E F    EUI-48 and EUI-64                 O    a location
//   K      a CAA tag                         P    parameters of a service
//   p      address prefixes of APL           i    IPSECKEY's gateway and key
//   I R    HIP's identity, its servers
struct Format {
  uint16_t type;
  std::string_view fields;
};
constexpr auto kFormats = std::to_array<Format>({
    {1, "a"},        {2, "n"},        {3, "n"},     {4, "n"},       {5, "n"},     {6, "nn4tttt"},    {7, "n"},
    {8, "n"},        {9, "n"},        {12, "n"},    {13, "ss"},     {14, "nn"},   {15, "2n"},        {16, "S"},
    {17, "nn"},      {18, "2n"},      {19, "s"},    {20, "S"},      {21, "2n"},   {24, "Tg14dd2nB"}, {25, "21gB"},
    {26, "2nn"},     {27, "sss"},     {28, "A"},    {29, "O"},      {33, "222n"}, {35, "22sssn"},    {36, "2n"},
    {37, "c2gB"},    {39, "n"},       {42, "p"},    {43, "2g1X"},   {44, "11X"},  {45, "1i"},        {46, "Tg14dd2nB"},
    {47, "NM"},      {48, "21gB"},    {49, "B"},    {50, "112hHM"}, {51, "112h"}, {52, "111X"},      {53, "111X"},
    {55, "IR"},      {56, "S"},       {59, "2g1X"}, {60, "21gB"},   {61, "B"},    {62, "42M"},       {63, "411X"},
    {64, "2NP"},     {65, "2NP"},     {99, "S"},    {104, "2L"},    {105, "2a"},  {106, "2L"},       {107, "2n"},
    {108, "E"},      {109, "F"},      {256, "22Q"}, {257, "1KQ"},   {258, "S"},   {261, "S"},        {262, "S"},
    {32768, "2g1X"}, {32769, "2g1X"},
});
static_assert(std::ranges::is_sorted(kFormats, {}, &Format::type));

// Empty: known by its number only.
std::string_view fieldsOf(uint16_t type) {
  const auto it = std::ranges::lower_bound(kFormats, type, {}, &Format::type);
  return it != kFormats.end() && it->type == type ? it->fields : std::string_view();
}

constexpr auto kAlgorithmTable = std::to_array<dns::Mnemonic>({{1, "RSAMD5"},
                                                               {2, "DH"},
                                                               {3, "DSA"},
                                                               {5, "RSASHA1"},
                                                               {6, "DSA-NSEC3-SHA1"},
                                                               {7, "RSASHA1-NSEC3-SHA1"},
                                                               {8, "RSASHA256"},
                                                               {10, "RSASHA512"},
                                                               {12, "ECC-GOST"},
                                                               {13, "ECDSAP256SHA256"},
                                                               {14, "ECDSAP384SHA384"},
                                                               {15, "ED25519"},
                                                               {16, "ED448"},
                                                               {252, "INDIRECT"},
                                                               {253, "PRIVATEDNS"},
                                                               {254, "PRIVATEOID"}});
constexpr auto kCertificateTable = std::to_array<dns::Mnemonic>({{1, "PKIX"},
                                                                 {2, "SPKI"},
                                                                 {3, "PGP"},
                                                                 {4, "IPKIX"},
                                                                 {5, "ISPKI"},
                                                                 {6, "IPGP"},
                                                                 {7, "ACPKIX"},
                                                                 {8, "IACPKIX"},
                                                                 {253, "URI"},
                                                                 {254, "OID"}});
constinit const dns::Mnemonics kAlgorithms(kAlgorithmTable, "", 255);
constinit const dns::Mnemonics kCertificates(kCertificateTable, "", 65535);

// Seconds from 1970, modulo 2^32: as such, or as YYYYMMDDHHMMSS (RFC 4034 §3.2).
std::optional<uint32_t> parseTime(std::string_view text) {
  if (text.size() != 14) return parseNumber<uint32_t>(text);
  const auto part = [&](size_t pos, size_t size) { return parseNumber<int>(text.substr(pos, size)).value_or(-1); };
  const std::chrono::year_month_day date(std::chrono::year(part(0, 4)),
                                         std::chrono::month(static_cast<unsigned>(part(4, 2))),
                                         std::chrono::day(static_cast<unsigned>(part(6, 2))));
  const int hours = part(8, 2);
  const int minutes = part(10, 2);
  const int seconds = part(12, 2);
  if (!date.ok() || hours < 0 || hours > 23 || minutes < 0 || minutes > 59 || seconds < 0 || seconds > 60)
    return std::nullopt;
  const int64_t days = std::chrono::sys_days(date).time_since_epoch().count();
  return static_cast<uint32_t>(days * 86400 + hours * 3600 + minutes * 60 + seconds);
}

// Reads the words of one record.
class Reader {
 public:
  Reader(std::span<const Word> words, const dns::Name& origin, std::vector<uint8_t>& rdata)
      : words_(words), origin_(origin), rdata_(rdata) {}

  Result<void> read(std::string_view fields) {
    for (const char field : fields) {
      if (words_.empty() && !mayBeEmpty(field)) return fail("the data end too early");
      if (auto done = readField(field); !done) return done;
    }
    if (!words_.empty())
      return fail(fmt::format("'{}' is more than the data of this type", printable(words_.front().text)));
    return {};
  }

  // `\# SIZE HEX…` (RFC 3597 §5)
  Result<void> readGeneric() {
    take();
    if (words_.empty()) return fail("\\# without a size");
    const auto size = parseNumber<uint16_t>(words_.front().text);
    if (!size) return notA(words_.front().text, "size");
    take();
    if (!decodeHex(joined(), rdata_) || rdata_.size() != *size)
      return fail(fmt::format("these are not {} bytes in hex", *size));
    return {};
  }

 private:
  static bool mayBeEmpty(char field) { return std::string_view("MPXpR").find(field) != std::string_view::npos; }

  Result<void> readField(char field) {
    using Read = Result<void> (Reader::*)();
    static constexpr auto kReaders = std::to_array<std::pair<char, Read>>({
        {'1', &Reader::number<uint8_t>},
        {'2', &Reader::number<uint16_t>},
        {'4', &Reader::number<uint32_t>},
        {'n', &Reader::name<true>},
        {'N', &Reader::name<false>},
        {'a', &Reader::address<true>},
        {'A', &Reader::address<false>},
        {'L', &Reader::groups},
        {'s', &Reader::string},
        {'S', &Reader::strings},
        {'Q', &Reader::bytes},
        {'X', &Reader::hex},
        {'B', &Reader::base64},
        {'M', &Reader::bitmap},
        {'h', &Reader::salt},
        {'H', &Reader::hash},
        {'t', &Reader::ttl},
        {'d', &Reader::time},
        {'T', &Reader::type},
        {'g', &Reader::algorithm},
        {'c', &Reader::certificate},
        {'E', &Reader::octets<6>},
        {'F', &Reader::octets<8>},
        {'O', &Reader::location},
        {'K', &Reader::tag},
        {'P', &Reader::parameters},
        {'p', &Reader::prefixes},
        {'i', &Reader::gatewayAndKey},
        {'I', &Reader::hostIdentity},
        {'R', &Reader::names},
    });
    const auto reader = std::ranges::find(kReaders, field, &std::pair<char, Read>::first);
    assert(reader != kReaders.end());
    return (this->*reader->second)();
  }

  std::string_view take() {
    const std::string_view text = words_.front().text;
    words_ = words_.subspan(1);
    return text;
  }
  std::string joined() {
    std::string all;
    while (!words_.empty()) all += take();
    return all;
  }
  void put(uint64_t value, size_t bytes) {
    while (bytes-- > 0) rdata_.push_back(static_cast<uint8_t>(value >> (8 * bytes)));
  }
  void put(std::span<const uint8_t> bytes) { rdata_.insert(rdata_.end(), bytes.begin(), bytes.end()); }

  template <typename T>
  Result<void> number() {
    const std::string_view text = take();
    const auto value = parseNumber<T>(text);
    if (!value) return notA(text, fmt::format("number from 0 to {}", std::numeric_limits<T>::max()));
    put(*value, sizeof(T));
    return {};
  }

  template <bool fold>
  Result<void> name() {
    WireName wire;
    if (auto read = readName(take(), origin_, fold, wire); !read) return read;
    put(wire.span());
    return {};
  }

  Result<void> names() {
    while (!words_.empty()) {
      if (auto read = name<false>(); !read) return read;
    }
    return {};
  }

  template <bool v4>
  Result<void> address() {
    const std::string_view text = take();
    const auto parsed = IpAddress::parse(text);
    if (!parsed || parsed->isV4() != v4) return notA(text, v4 ? "IPv4 address" : "IPv6 address");
    put({parsed->data(), parsed->size()});
    return {};
  }

  // Four groups of hex digits.
  Result<void> groups() {
    const std::string_view text = take();
    std::string_view rest = text;
    for (int i = 0; i < 4; ++i) {
      const std::string_view group = rest.substr(0, rest.find(':'));
      const auto value = parseNumber<uint16_t>(group, 16);
      if (!value || group.size() > 4) return notA(text, "number of four groups");
      put(*value, 2);
      rest.remove_prefix(std::min(group.size() + 1, rest.size()));
    }
    if (!rest.empty()) return notA(text, "number of four groups");
    return {};
  }

  Result<void> string() {
    const size_t start = rdata_.size();
    rdata_.push_back(0);
    const std::string_view text = take();
    if (!unescape(text, rdata_)) return notA(text, "text: a bad escape");
    const size_t size = rdata_.size() - start - 1;
    if (size > 255) return fail("a text of more than 255 bytes: write it as several");
    rdata_[start] = static_cast<uint8_t>(size);
    return {};
  }
  Result<void> strings() {
    while (!words_.empty()) {
      if (auto read = string(); !read) return read;
    }
    return {};
  }
  Result<void> bytes() {
    const std::string_view text = take();
    return unescape(text, rdata_) ? Result<void>() : notA(text, "text: a bad escape");
  }
  Result<void> tag() {
    const std::string_view text = words_.front().text;
    const bool letters =
        std::ranges::all_of(text, [](char c) { return isDigit(c) || (lowerCase(c) >= 'a' && lowerCase(c) <= 'z'); });
    if (text.empty() || !letters) return notA(text, "tag");
    return string();
  }

  Result<void> hex() {
    const std::string text = joined();
    return decodeHex(text, rdata_) ? Result<void>() : notA(text, "hex");
  }
  Result<void> base64() {
    const std::string text = joined();
    return decodeBase64(text, rdata_) ? Result<void>() : notA(text, "base64");
  }

  Result<void> salt() {
    const std::string_view text = take();
    std::vector<uint8_t> decoded;
    if (text != "-" && (!decodeHex(text, decoded) || decoded.size() > 255)) return notA(text, "salt");
    put(decoded.size(), 1);
    put(decoded);
    return {};
  }
  Result<void> hash() {
    const std::string_view text = take();
    std::vector<uint8_t> decoded;
    if (!decodeBase32Hex(text, decoded) || decoded.empty() || decoded.size() > 255)
      return notA(text, "hash in base32hex");
    put(decoded.size(), 1);
    put(decoded);
    return {};
  }

  Result<void> bitmap() {
    std::vector<uint16_t> types;
    while (!words_.empty()) {
      const std::string_view text = take();
      const auto type = dns::kTypeNames.parse(text);
      if (!type) return notA(text, "type");
      types.push_back(*type);
    }
    std::ranges::sort(types);
    for (size_t i = 0; i < types.size();) {
      std::array<uint8_t, 32> window{};
      const unsigned number = types[i] >> 8;
      size_t size = 0;
      for (; i < types.size() && types[i] >> 8 == static_cast<int>(number); ++i) {
        const size_t bit = types[i] & 0xff;
        window.at(bit / 8) = static_cast<uint8_t>(window.at(bit / 8) | 0x80 >> (bit % 8));
        size = bit / 8 + 1;
      }
      put(number, 1);
      put(size, 1);
      put(std::span(window).first(size));
    }
    return {};
  }

  Result<void> ttl() {
    const std::string_view text = take();
    const auto value = parseTtl(text);
    if (!value) return notA(text, "time in seconds");
    put(*value, 4);
    return {};
  }
  Result<void> time() {
    const std::string_view text = take();
    const auto value = parseTime(text);
    if (!value) return notA(text, "time: YYYYMMDDHHMMSS");
    put(*value, 4);
    return {};
  }
  Result<void> type() { return mnemonic(dns::kTypeNames, 2, "type"); }
  Result<void> algorithm() { return mnemonic(kAlgorithms, 1, "algorithm"); }
  Result<void> certificate() { return mnemonic(kCertificates, 2, "kind of certificate"); }
  Result<void> mnemonic(const dns::Mnemonics& table, size_t bytes, std::string_view what) {
    const std::string_view text = take();
    const auto value = table.parse(text);
    if (!value) return notA(text, what);
    put(*value, bytes);
    return {};
  }

  // 00-00-5e-00-53-2a
  template <size_t count>
  Result<void> octets() {
    const std::string_view text = take();
    bool good = text.size() == 3 * count - 1;
    for (size_t i = 0; good && i < count; ++i) {
      const auto octet = parseNumber<uint8_t>(text.substr(3 * i, 2), 16);
      good = octet && (i + 1 == count || text[3 * i + 2] == '-');
      if (good) put(*octet, 1);
    }
    return good ? Result<void>() : notA(text, "hardware address");
  }

  Result<void> prefixes() {
    while (!words_.empty()) {
      if (auto read = prefix(); !read) return read;
    }
    return {};
  }
  // [!]FAMILY:ADDRESS/LENGTH, without the zeros at the address's end (RFC 3123 §4, §5).
  Result<void> prefix() {
    const std::string_view text = take();
    const bool negated = text.starts_with('!');
    const std::string_view item = text.substr(negated ? 1 : 0);
    const size_t slash = std::min(item.find('/'), item.size());
    const bool v4 = item.starts_with("1:");
    const auto address =
        v4 || item.starts_with("2:") ? IpAddress::parse(item.substr(2, slash - 2)) : std::optional<IpAddress>();
    const auto length = parseNumber<uint8_t>(item.substr(std::min(slash + 1, item.size())));
    if (!address || address->isV4() != v4 || !length || *length > 8 * address->size())
      return notA(text, "address prefix: [!]FAMILY:ADDRESS/LENGTH");
    size_t size = address->size();
    while (size > 0 && address->data()[size - 1] == 0) --size;
    put(v4 ? 1 : 2, 2);
    put(*length, 1);
    put((negated ? 0x80 : 0) | size, 1);
    put({address->data(), size});
    return {};
  }

  // TYPE ALGORITHM GATEWAY [KEY] (RFC 4025 §3.1)
  Result<void> gatewayAndKey() {
    if (words_.size() < 3) return fail("the data end too early");
    const std::string_view type_text = words_.front().text;
    if (auto read = number<uint8_t>(); !read) return read;
    const uint8_t type = rdata_.back();
    if (auto read = number<uint8_t>(); !read) return read;
    Result<void> read;
    if (type == 0) {
      if (const std::string_view text = take(); text != ".") read = notA(text, "gateway of type 0: write '.'");
    } else if (type <= 3) {
      read = type == 1 ? address<true>() : type == 2 ? address<false>() : name<false>();
    } else {
      read = notA(type_text, "type of a gateway");
    }
    return read ? base64() : read;
  }

  // ALGORITHM HIT KEY (RFC 8005 §5, §6)
  Result<void> hostIdentity() {
    if (words_.size() < 3) return fail("the data end too early");
    rdata_.push_back(0);  // the HIT's size
    if (auto read = number<uint8_t>(); !read) return read;
    std::vector<uint8_t> hit;
    std::vector<uint8_t> key;
    const std::string_view hit_text = take();
    if (!decodeHex(hit_text, hit) || hit.empty() || hit.size() > 255) return notA(hit_text, "HIT in hex");
    const std::string_view key_text = take();
    if (!decodeBase64(key_text, key) || key.empty() || key.size() > kMaxRdata) return notA(key_text, "base64");
    rdata_.front() = static_cast<uint8_t>(hit.size());
    put(key.size(), 2);
    put(hit);
    put(key);
    return {};
  }

  Result<void> location() { return readLocation(std::exchange(words_, {}), rdata_); }
  Result<void> parameters() { return readServiceParameters(std::exchange(words_, {}), rdata_); }

  std::span<const Word> words_;
  const dns::Name& origin_;
  std::vector<uint8_t>& rdata_;
};

// The bytes of IPSECKEY's gateway, with its type and the algorithm; all, if the type is unknown. 0: they are none.
size_t gatewaySize(std::span<const uint8_t> rdata) {
  constexpr size_t kHead = 2;
  constexpr std::array<size_t, 3> kSizes{0, 4, 16};
  if (rdata.size() < kHead) return 0;
  const uint8_t type = rdata[0];
  if (type < kSizes.size()) return kHead + kSizes[type];
  if (type > kSizes.size()) return rdata.size();
  const size_t name = dns::uncompressedNameSize(rdata.subspan(kHead));
  return name > 0 ? kHead + name : 0;
}

// Walks over data in wire form, and folds its names where `n` stands. False: they are not what the type wants.
bool checkWire(std::string_view fields, std::span<uint8_t> rdata) {
  const auto skip = [&rdata](size_t size) {
    if (rdata.size() < size) return false;
    rdata = rdata.subspan(size);
    return true;
  };
  const auto skipCounted = [&] { return !rdata.empty() && skip(rdata[0] + size_t{1}); };
  for (const char field : fields) {
    bool good = true;
    switch (field) {
      case '1':
      case 'g':
        good = skip(1);
        break;
      case '2':
      case 'T':
      case 'c':
        good = skip(2);
        break;
      case '4':
      case 't':
      case 'd':
      case 'a':
        good = skip(4);
        break;
      case 'A':
        good = skip(16);
        break;
      case 'L':
      case 'F':
        good = skip(8);
        break;
      case 'E':
        good = skip(6);
        break;
      case 'O':
        good = skip(16);
        break;
      case 'n':
      case 'N': {
        const size_t size = dns::uncompressedNameSize(rdata);
        if (size == 0) return false;
        if (field == 'n') std::ranges::transform(rdata.first(size), rdata.begin(), dns::toLower);
        good = skip(size);
        break;
      }
      case 's':
      case 'h':
      case 'H':
      case 'K':
        good = skipCounted();
        break;
      case 'S':
        good = !rdata.empty();
        while (good && !rdata.empty()) good = skipCounted();
        break;
      case 'p':
        while (good && !rdata.empty()) good = rdata.size() >= 4 && skip(size_t{4} + (rdata[3] & 0x7f));
        break;
      case 'i': {
        const size_t size = gatewaySize(rdata);
        if (size == 0 || !skip(size)) return false;
        rdata = {};  // the key
        break;
      }
      case 'I':
        good = rdata.size() >= 4 && skip(size_t{4} + rdata[0] + dns::load16(&rdata[2]));
        break;
      case 'R':
        while (good && !rdata.empty()) {
          const size_t size = dns::uncompressedNameSize(rdata);
          good = size > 0 && skip(size);
        }
        break;
      default:
        rdata = {};  // the rest, whatever it is
    }
    if (!good) return false;
  }
  return rdata.empty();
}

}  // namespace

Result<void> readName(std::string_view text, const dns::Name& origin, bool fold, WireName& name) {
  if (text == "@") {
    name.assign(origin.wire());
    return {};
  }
  if (text.empty()) return fail("a domain name is empty");
  size_t label = 0;  // offset of the length byte of the label being read
  size_t end = 1;    // where its next byte goes
  for (size_t pos = text == "." ? 1 : 0; pos < text.size();) {
    if (text[pos] == '.') {
      ++pos;
      if (end - label == 1) return fail(fmt::format("an empty label in '{}'", printable(text)));
      name.bytes[label] = static_cast<uint8_t>(end - label - 1);
      label = end++;
    } else {
      const int byte = dns::readEscapedByte(text, pos);
      if (byte < 0) return fail(fmt::format("a bad escape in '{}'", printable(text)));
      if (end - label > dns::kMaxLabelLength)
        return fail(fmt::format("a label of more than 63 bytes in '{}'", printable(text)));
      if (end < name.bytes.size()) {
        const auto plain = static_cast<uint8_t>(byte);
        name.bytes[end] = fold ? dns::toLower(plain) : plain;
      }
      ++end;
    }
    if (end > dns::kMaxNameLength) return fail(fmt::format("a name of more than 255 bytes: '{}'", printable(text)));
  }
  name.bytes[label] = 0;
  name.size = static_cast<uint8_t>(end);
  if (end - label == 1) return {};
  name.bytes[label] = static_cast<uint8_t>(end - label - 1);
  if (end + origin.size() > dns::kMaxNameLength)
    return fail(fmt::format("a name of more than 255 bytes: '{}'", printable(text)));
  std::ranges::copy(origin.wire(), name.bytes.begin() + static_cast<ptrdiff_t>(end));
  name.size = static_cast<uint8_t>(end + origin.size());
  return {};
}

std::optional<uint32_t> parseTtl(std::string_view text) {
  constexpr uint64_t kMost = std::numeric_limits<uint32_t>::max();
  uint64_t sum = 0;
  while (!text.empty()) {
    size_t digits = 0;
    while (digits < text.size() && isDigit(text[digits])) ++digits;
    const auto number = parseNumber<uint32_t>(text.substr(0, digits));
    if (!number) return std::nullopt;
    uint64_t unit = 1;
    if (digits < text.size()) {
      switch (lowerCase(text[digits++])) {
        case 's':
          break;
        case 'm':
          unit = 60;
          break;
        case 'h':
          unit = 3600;
          break;
        case 'd':
          unit = 86400;
          break;
        case 'w':
          unit = 604800;
          break;
        default:
          return std::nullopt;
      }
    }
    sum += *number * unit;
    if (sum > kMost) return std::nullopt;
    text.remove_prefix(digits);
  }
  return static_cast<uint32_t>(sum);
}

Result<RecordHead> readRecordHead(std::span<const Word> words) {
  RecordHead head;
  bool has_class = false;
  for (;; words = words.subspan(1)) {
    if (words.empty()) return fail("a record without a type");
    const std::string_view word = words.front().text;
    if (!head.ttl && !word.empty() && isDigit(word.front())) {
      const auto ttl = parseTtl(word);
      if (!ttl) return fail(fmt::format("'{}' is no TTL", printable(word)));
      head.ttl = effectiveTtl(*ttl);
    } else if (const auto rr_class = has_class ? std::nullopt : dns::kClassNames.parse(word)) {
      if (*rr_class != dns::code(dns::RrClass::kIn))
        return fail(fmt::format("class {}: there is only IN", dns::kClassNames.toString(*rr_class)));
      has_class = true;
    } else {
      head.type_and_data = words;
      return head;
    }
  }
}

bool isZoneType(uint16_t type) {
  constexpr uint16_t kFirstMeta = 128;
  constexpr uint16_t kLastMeta = 255;
  return type != 0 && type != dns::code(dns::RrType::kOpt) && (type < kFirstMeta || type > kLastMeta);
}

bool checkRdata(uint16_t type, std::span<uint8_t> rdata) {
  const std::string_view fields = fieldsOf(type);
  return fields.empty() || checkWire(fields, rdata);
}

Result<void> readRdata(uint16_t type, std::span<const Word> words, const dns::Name& origin,
                       std::vector<uint8_t>& rdata) {
  rdata.clear();
  const std::string_view fields = fieldsOf(type);
  Reader reader(words, origin, rdata);
  const bool generic = !words.empty() && words.front().text == "\\#" && !words.front().quoted;
  if (!generic && fields.empty())
    return fail(fmt::format("data of type {} are written as: \\# SIZE HEX", dns::kTypeNames.toString(type)));
  if (auto read = generic ? reader.readGeneric() : reader.read(fields); !read) return read;
  if (rdata.size() > kMaxRdata) return fail("data of more than 65535 bytes");
  if (generic && !fields.empty() && !checkWire(fields, rdata))
    return fail(fmt::format("these are no data of type {}", dns::kTypeNames.toString(type)));
  return {};
}

}  // namespace idetcd::zones
