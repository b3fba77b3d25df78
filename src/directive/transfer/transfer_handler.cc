#include "directive/transfer/transfer_handler.h"

#include "dns/message_reader.h"
#include "dns/response.h"
#include "zones/transfer_writer.h"

namespace idetcd::directive {

using dns::Rcode;
using dns::RrType;
using resolve::QueryOutcome;

namespace {

constexpr std::chrono::hours kLongest{1};  // of one transfer

QueryOutcome say(Rcode rcode, const dns::Query& query, const resolve::Request& request, uint16_t flags) {
  return QueryOutcome::answer(dns::ResponseBuilder(query, request.response_limit).finish(rcode, flags));
}

QueryOutcome saySoa(const zones::ZoneCopy& copy, const dns::Query& query, const resolve::Request& request,
                    uint16_t flags) {
  const auto soa = copy.soa();
  std::vector<uint8_t> record(dns::kRecordHeadSize + soa.rdata.size());
  dns::putBytes(
      dns::putRecordHead(record.data(), dns::kQuestionPointer, RrType::kSoa, soa.ttl_seconds, soa.rdata.size()),
      soa.rdata);
  dns::ResponseBuilder response(query, request.response_limit);
  response.addAnswer(record, 1);
  return QueryOutcome::answer(response.finish(Rcode::kNoError, static_cast<uint16_t>(flags | dns::kFlagAa)));
}

// Of the SOA in an IXFR's authority section (RFC 1995 §3).
std::optional<uint32_t> serialOf(const dns::Query& query) {
  constexpr size_t kLeastSoa = 22;
  dns::MessageReader reader({query.message, query.size}, query.question_end);
  dns::RecordView record;
  while (reader.next(record) == dns::ReadStep::kRead) {
    if (record.section != dns::Section::kAuthority || !dns::isType(record.type, RrType::kSoa)) continue;
    if (record.rdata_size < kLeastSoa) return std::nullopt;
    return zones::ZoneCopy::serialOf({query.message + record.rdata, record.rdata_size});
  }
  return std::nullopt;
}

class TransferStream final : public resolve::MessageStream {
 public:
  struct Parts {
    zones::TransferWriter writer;
    std::weak_ptr<const zones::PublishedZones> zones;  // a slow client keeps its own zone only
    dns::Name zone;
    IpAddress client;
    std::optional<uint32_t> since{};  // the changes since this serial, not all of the zone
    Transfers::Place place;
    std::shared_ptr<TransferCounters> counters;
    Logger log;
  };
  explicit TransferStream(Parts parts) : parts_(std::move(parts)) {}

  std::optional<size_t> next(std::span<uint8_t> room) override {
    const auto time = BootClock::now() - begin_;
    if (time > kLongest) {
      parts_.log.warning("{} takes longer than an hour and is given up", what());
      return std::nullopt;
    }
    const size_t size = parts_.writer.next(room);
    if (size > 0) return size;
    const uint32_t serial = parts_.writer.zone().serial();
    if (const auto zones = parts_.zones.lock()) zones->noteGiven(parts_.zone.wire(), serial, parts_.client);
    (parts_.since ? parts_.counters->changes : parts_.counters->sent).add();
    parts_.log.info("{}: serial {}, {} records, {} bytes in {} ms", what(), serial, parts_.writer.records(),
                    parts_.writer.bytes(), std::chrono::duration_cast<std::chrono::milliseconds>(time).count());
    return 0;
  }

 private:
  std::string what() const {
    const std::string since = parts_.since ? fmt::format(" since serial {}", *parts_.since) : std::string();
    return fmt::format("transfer of {}{} to {}", parts_.zone.toString(), since, parts_.client.toString());
  }

  Parts parts_;
  const BootClock::time_point begin_ = BootClock::now();
};

IpAddress clientOf(const IpAddress& address) {
  const IpAddress ip = address.unmapped();
  if (ip.isV4()) return ip;
  std::array<uint8_t, 16> bytes{};
  std::copy_n(ip.data(), 8, bytes.begin());
  return IpAddress::v6(bytes);
}

bool mayHave(const TransferSettings& settings, const std::optional<IpAddress>& client) {
  if (settings.to_all) return true;
  return client && std::ranges::any_of(settings.clients,
                                       [&](const IpNetwork& network) { return network.contains(*client); });
}

}  // namespace

const TransferSettings* settingsOf(const std::vector<TransferSettings>& all, std::span<const uint8_t> name) {
  const TransferSettings* longest = nullptr;
  size_t size = 0;
  for (const TransferSettings& settings : all) {
    for (const dns::Name& zone : settings.zones) {
      if (zone.size() <= size || !dns::isNameWithin(name, zone)) continue;
      longest = &settings;
      size = zone.size();
    }
  }
  return longest;
}

Transfers::Place Transfers::enter(const IpAddress& address) {
  const IpAddress client = clientOf(address);
  const std::lock_guard lock(counts_->mutex);
  const auto known = counts_->of_clients.find(client);
  const bool is_full = known != counts_->of_clients.end() && known->second == kMostOfClient;
  if (counts_->all == kMost || is_full) return nullptr;
  ++counts_->all;
  ++counts_->of_clients[client];
  return {counts_.get(), [counts = counts_, client](const void*) {
            const std::lock_guard leaving(counts->mutex);
            --counts->all;
            const auto left = counts->of_clients.find(client);
            if (--left->second == 0) counts->of_clients.erase(left);
          }};
}

QueryOutcome TransferHandler::answer(const dns::Query& query, const resolve::Request& request, uint16_t flags) {
  const TransferSettings* const settings = settingsOf(*context_.settings, query.name());
  if (settings == nullptr || !mayHave(*settings, IpAddress::fromSockaddr(request.source)))
    return say(Rcode::kRefused, query, request, flags);
  const bool is_udp = request.transport == resolve::Transport::kUdp;
  const bool is_ixfr = dns::isType(query.qtype, RrType::kIxfr);
  std::optional<uint32_t> serial;
  if (is_ixfr) serial = serialOf(query);
  if (is_ixfr ? !serial : is_udp) return say(Rcode::kFormErr, query, request, flags);
  if (!is_ixfr && request.one_message) return say(Rcode::kRefused, query, request, flags);
  zones::PublishedZones::Found found;
  std::shared_ptr<const zones::PublishedZones> in;
  for (const auto& zones : context_.zones) {
    if (found = zones->headOf(query.name()); !found.is_here) continue;
    in = zones;
    break;
  }
  if (!in) return say(Rcode::kNotAuth, query, request, flags);
  if (!found.copy) return say(Rcode::kServFail, query, request, flags);
  if (is_ixfr && (is_udp || request.one_message || !zones::isLaterSerial(found.copy->serial(), *serial)))
    return saySoa(*found.copy, query, request, flags);
  return send(in, serial, query, request, flags);
}

// The place first: a copy may take long to make.
QueryOutcome TransferHandler::send(const std::shared_ptr<const zones::PublishedZones>& zones,
                                   std::optional<uint32_t> have, const dns::Query& query,
                                   const resolve::Request& request, uint16_t flags) {
  const auto source = IpAddress::fromSockaddr(request.source);
  if (request.deferrer == nullptr || !source) return say(Rcode::kServFail, query, request, flags);
  const IpAddress client = source->unmapped();
  const dns::Name zone = dns::Name::fromWire(query.name());
  Transfers::Place place = context_.transfers.enter(client);
  if (!place) {
    context_.log.warning("transfer of {} to {} is refused: {} are under way, or {} of the client", zone.toString(),
                         client.toString(), Transfers::kMost, Transfers::kMostOfClient);
    return say(Rcode::kServFail, query, request, flags);
  }
  std::unique_ptr<zones::ZoneCopy> copy = have ? zones->changesSince(zone.wire(), *have, client) : nullptr;
  if (!copy) {
    have.reset();
    copy = zones->copyOf(zone.wire()).copy;
  }
  if (!copy) return say(Rcode::kServFail, query, request, flags);
  request.deferrer->keepClient()->sendAll(std::make_unique<TransferStream>(
      TransferStream::Parts{.writer = zones::TransferWriter(query, flags, std::move(copy)),
                            .zones = zones,
                            .zone = zone,
                            .client = client,
                            .since = have,
                            .place = std::move(place),
                            .counters = counters_,
                            .log = context_.log}));
  return QueryOutcome::pending();
}

}  // namespace idetcd::directive
