#include "dns/types.h"

#include "base/text.h"

namespace idetcd::dns {

namespace {

constexpr auto kTypeTable = std::to_array<Mnemonic>({
    {1, "A"},        {2, "NS"},      {3, "MD"},          {4, "MF"},       {5, "CNAME"},      {6, "SOA"},
    {7, "MB"},       {8, "MG"},      {9, "MR"},          {10, "NULL"},    {11, "WKS"},       {12, "PTR"},
    {13, "HINFO"},   {14, "MINFO"},  {15, "MX"},         {16, "TXT"},     {17, "RP"},        {18, "AFSDB"},
    {19, "X25"},     {20, "ISDN"},   {21, "RT"},         {22, "NSAP"},    {23, "NSAP-PTR"},  {24, "SIG"},
    {25, "KEY"},     {26, "PX"},     {27, "GPOS"},       {28, "AAAA"},    {29, "LOC"},       {30, "NXT"},
    {31, "EID"},     {32, "NIMLOC"}, {33, "SRV"},        {34, "ATMA"},    {35, "NAPTR"},     {36, "KX"},
    {37, "CERT"},    {38, "A6"},     {39, "DNAME"},      {40, "SINK"},    {41, "OPT"},       {42, "APL"},
    {43, "DS"},      {44, "SSHFP"},  {45, "IPSECKEY"},   {46, "RRSIG"},   {47, "NSEC"},      {48, "DNSKEY"},
    {49, "DHCID"},   {50, "NSEC3"},  {51, "NSEC3PARAM"}, {52, "TLSA"},    {53, "SMIMEA"},    {55, "HIP"},
    {56, "NINFO"},   {57, "RKEY"},   {58, "TALINK"},     {59, "CDS"},     {60, "CDNSKEY"},   {61, "OPENPGPKEY"},
    {62, "CSYNC"},   {63, "ZONEMD"}, {64, "SVCB"},       {65, "HTTPS"},   {66, "DSYNC"},     {99, "SPF"},
    {100, "UINFO"},  {101, "UID"},   {102, "GID"},       {103, "UNSPEC"}, {104, "NID"},      {105, "L32"},
    {106, "L64"},    {107, "LP"},    {108, "EUI48"},     {109, "EUI64"},  {128, "NXNAME"},   {249, "TKEY"},
    {250, "TSIG"},   {251, "IXFR"},  {252, "AXFR"},      {253, "MAILB"},  {254, "MAILA"},    {255, "ANY"},
    {256, "URI"},    {257, "CAA"},   {258, "AVC"},       {259, "DOA"},    {260, "AMTRELAY"}, {261, "RESINFO"},
    {262, "WALLET"}, {263, "CLA"},   {264, "IPN"},       {32768, "TA"},   {32769, "DLV"},
});

constexpr auto kClassTable =
    std::to_array<Mnemonic>({{1, "IN"}, {2, "CS"}, {3, "CH"}, {4, "HS"}, {254, "NONE"}, {255, "ANY"}});

// The second ones as CoreDNS's `next` and `failover` know them.
constexpr auto kRcodeTable = std::to_array<Mnemonic>({
    {0, "NOERROR"},    {1, "FORMERR"},  {2, "SERVFAIL"},  {3, "NXDOMAIN"},   {4, "NOTIMP"},   {4, "NOTIMPL"},
    {5, "REFUSED"},    {6, "YXDOMAIN"}, {7, "YXRRSET"},   {8, "NXRRSET"},    {9, "NOTAUTH"},  {10, "NOTZONE"},
    {11, "DSOTYPENI"}, {16, "BADVERS"}, {16, "BADSIG"},   {17, "BADKEY"},    {18, "BADTIME"}, {19, "BADMODE"},
    {20, "BADNAME"},   {21, "BADALG"},  {22, "BADTRUNC"}, {23, "BADCOOKIE"},
});

constexpr auto kOpcodeTable =
    std::to_array<Mnemonic>({{0, "QUERY"}, {1, "IQUERY"}, {2, "STATUS"}, {4, "NOTIFY"}, {5, "UPDATE"}, {6, "DSO"}});

constexpr bool isSorted(std::span<const Mnemonic> table) {
  return std::ranges::is_sorted(table, {}, &Mnemonic::number);
}
static_assert(isSorted(kTypeTable) && isSorted(kClassTable) && isSorted(kRcodeTable) && isSorted(kOpcodeTable));

constexpr char upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }

bool equalInAnyCase(std::string_view text, std::string_view upper_case) {
  return std::ranges::equal(text, upper_case, {}, upper);
}

}  // namespace

constinit const Mnemonics kTypeNames(kTypeTable, "TYPE", std::numeric_limits<uint16_t>::max());
constinit const Mnemonics kClassNames(kClassTable, "CLASS", std::numeric_limits<uint16_t>::max());
constinit const Mnemonics kRcodeNames(kRcodeTable, "RCODE", 0xfff);
constinit const Mnemonics kOpcodeNames(kOpcodeTable, "OPCODE", 0xf);

std::string Mnemonics::toString(uint16_t number) const {
  const auto it = std::ranges::lower_bound(table_, number, {}, &Mnemonic::number);
  if (it != table_.end() && it->number == number) return std::string(it->text);
  return fmt::format("{}{}", prefix_, number);
}

std::optional<uint16_t> Mnemonics::parse(std::string_view text) const {
  const auto it = std::ranges::find_if(table_, [text](const Mnemonic& m) { return equalInAnyCase(text, m.text); });
  if (it != table_.end()) return it->number;
  if (!equalInAnyCase(text.substr(0, prefix_.size()), prefix_)) return std::nullopt;
  const auto number = parseNumber<uint16_t>(text.substr(prefix_.size()));
  return number && *number <= largest_ ? number : std::nullopt;
}

}  // namespace idetcd::dns
