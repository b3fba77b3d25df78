// Answers of a zone whose names are the services of a table, as SkyDNS and CoreDNS's `etcd` give them: a name has what is
// at its key and at all keys below.
//
//   A, AAAA, TXT   the addresses, or texts; where there are none, an alias and what it leads to
//   SRV, MX, NS    one for each service; a host that is an address gets the name of its key. With their addresses
//   PTR, CNAME     of the key itself only
//   SOA            made up; NS: what is below ns.dns.ZONE; A and AAAA of the zone: what is below apex.dns.ZONE, if anything is
//   a label `*` or `any` of the query stands for every label
//
// Work is bounded: of a query that concerns more than kMostKeys keys, or more than can fit the response by far, some are not
// looked at. TC says so where the answer section may lack something for that. One Lookup a loop; what a look-up finds is
// valid until the next one, as long as the table is.
#pragma once

#include <unordered_set>

#include "base/hash.h"
#include "dns/message_reader.h"
#include "dns/query.h"
#include "skydns/service_table.h"

namespace idetcd::skydns {

// What was found of a name outside of the zone, for the answer with an alias that leads there.
struct ForeignAnswer {
  dns::Name name;
  std::span<const uint8_t> message{};  // the response to the question for it, whose records count. Empty: nothing was found
  size_t question_end = 0;             // of `message`
};

class Lookup {
 public:
  static constexpr size_t kMostKeys = 4096;
  static constexpr size_t kMostAliases = 8;  // in a row

  enum class Outcome : uint8_t {
    kFound,       // records, or none: NODATA
    kNoName,      // nor any below it
    kForeign,     // an alias leads to foreignName(); with an answer to that it is to be looked up again. Of several the first;
                  // with an answer to another name: none of the aliases leads there any more
    kParentSide,  // DS of the zone's own name
  };
  // What becomes of an alias that leads out of the zone.
  enum class Aliases : uint8_t {
    kFollow,  // kForeign, unless `foreign` is about that name
    kAlone,   // it is the answer
  };

  // `limit`: bytes of the response, as of write(). `foreign` may be null. REQUIRES: the query's name is within `zone`.
  Outcome run(const ServiceTable& table, const dns::Name& zone, const dns::Query& query, size_t limit, Aliases aliases,
              const ForeignAnswer* foreign = nullptr);
  const dns::Name& foreignName() const { return foreign_name_; }

  // Over the query, after run(): what was found, else NODATA, or NXDOMAIN after kNoName. Returns the size.
  size_t write(const dns::Query& query, size_t limit, uint16_t flags, std::optional<dns::EdeCode> ede = {}) const;
  // NODATA, without run().
  static size_t writeNoData(const ServiceTable& table, const dns::Name& zone, const dns::Query& query, size_t limit,
                            uint16_t flags);

 private:
  using Bytes = std::span<const uint8_t>;
  using Services = std::vector<const Service*>;
  struct Record {
    Bytes owner;
    dns::RrType type;
    uint32_t ttl;
    Bytes rdata;
  };
  // The records that are being collected: of the answer, or in addition to it.
  using Records = std::vector<Record>;

  bool find(Bytes name, bool with_below, Services& found);
  bool hasBelow(Bytes name);
  bool findForAddresses(Bytes name, Services& found);
  void leaveOtherGroups(Services& services) const;
  bool matches(std::string_view key) const;
  bool isIncluded(const Service& service) const;

  bool follow(Bytes name, dns::RrType type, Records& to, size_t aliases);
  bool addOwn(Bytes name, dns::RrType type, const Services& services, Records& to);
  bool followAlias(const Record& alias, dns::RrType type, Records& to, size_t aliases);
  bool addForeign(dns::RrType type, Records& to);
  void addHosts(Bytes target);
  Bytes targetOf(const Service& service);
  void addTarget(const Service& service, Bytes target);

  bool findServers(Bytes name);
  bool findMail(Bytes name);
  bool findNameServers();
  bool findExact(Bytes name, dns::RrType type);

  Bytes keep(std::span<const uint8_t> bytes);
  bool isNew(const Records& to, const Record& record);
  void add(Records& to, const Record& record);

  const ServiceTable* table_ = nullptr;
  const dns::Name* zone_ = nullptr;
  uint16_t qtype_ = 0;
  Aliases aliases_ = Aliases::kAlone;
  const ForeignAnswer* foreign_ = nullptr;
  dns::Name foreign_name_;
  bool needs_foreign_ = false;
  bool exists_ = false;
  bool has_met_foreign_ = false;  // an alias leads to foreign_
  size_t most_keys_ = kMostKeys;
  size_t looked_at_ = 0;                  // keys, and targets
  bool is_cut_ = false;                   // the answer section may lack something
  std::vector<std::string_view> labels_;  // of the name that find() looks for, the highest first
  Records answer_;
  Records additional_;
  std::deque<std::vector<uint8_t>> kept_;  // bytes that no service has
  const HashSeed seed_ = randomHashSeed();
  std::unordered_set<uint64_t> seen_;   // hashes of the records that were collected, each once
  std::unordered_set<uint64_t> tried_;  // of the aliases that were followed, and of the targets
};

}  // namespace idetcd::skydns
