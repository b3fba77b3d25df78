#include "dns/text.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace idetcd::dns {

namespace {

using Mnemonic = std::pair<uint16_t, std::string_view>;

constexpr auto kTypes = std::to_array<Mnemonic>({
    {1, "A"},      {2, "NS"},       {5, "CNAME"},       {6, "SOA"},     {10, "NULL"},   {11, "WKS"},
    {12, "PTR"},   {13, "HINFO"},   {14, "MINFO"},      {15, "MX"},     {16, "TXT"},    {17, "RP"},
    {18, "AFSDB"}, {24, "SIG"},     {25, "KEY"},        {28, "AAAA"},   {29, "LOC"},    {33, "SRV"},
    {35, "NAPTR"}, {36, "KX"},      {37, "CERT"},       {39, "DNAME"},  {41, "OPT"},    {42, "APL"},
    {43, "DS"},    {44, "SSHFP"},   {45, "IPSECKEY"},   {46, "RRSIG"},  {47, "NSEC"},   {48, "DNSKEY"},
    {49, "DHCID"}, {50, "NSEC3"},   {51, "NSEC3PARAM"}, {52, "TLSA"},   {53, "SMIMEA"}, {55, "HIP"},
    {59, "CDS"},   {60, "CDNSKEY"}, {61, "OPENPGPKEY"}, {62, "CSYNC"},  {63, "ZONEMD"}, {64, "SVCB"},
    {65, "HTTPS"}, {99, "SPF"},     {108, "EUI48"},     {109, "EUI64"}, {249, "TKEY"},  {250, "TSIG"},
    {251, "IXFR"}, {252, "AXFR"},   {253, "MAILB"},     {254, "MAILA"}, {255, "ANY"},   {256, "URI"},
    {257, "CAA"},  {32768, "TA"},   {32769, "DLV"},
});

constexpr auto kClasses = std::to_array<Mnemonic>({{1, "IN"}, {3, "CH"}, {4, "HS"}, {254, "NONE"}, {255, "ANY"}});

constexpr auto kRcodes = std::to_array<Mnemonic>({
    {0, "NOERROR"},
    {1, "FORMERR"},
    {2, "SERVFAIL"},
    {3, "NXDOMAIN"},
    {4, "NOTIMP"},
    {5, "REFUSED"},
    {6, "YXDOMAIN"},
    {7, "YXRRSET"},
    {8, "NXRRSET"},
    {9, "NOTAUTH"},
    {10, "NOTZONE"},
    {16, "BADVERS"},
    {17, "BADKEY"},
    {18, "BADTIME"},
    {23, "BADCOOKIE"},
});

template <typename Table>
std::string lookUp(const Table& table, uint16_t number, std::string_view prefix) {
  const auto it = std::find_if(table.begin(), table.end(), [number](const Mnemonic& m) { return m.first == number; });
  return it != table.end() ? std::string(it->second) : fmt::format("{}{}", prefix, number);
}

}  // namespace

std::string typeToString(uint16_t type) { return lookUp(kTypes, type, "TYPE"); }
std::string classToString(uint16_t klass) { return lookUp(kClasses, klass, "CLASS"); }
std::string rcodeToString(uint16_t rcode) { return lookUp(kRcodes, rcode, "RCODE"); }

}  // namespace idetcd::dns
