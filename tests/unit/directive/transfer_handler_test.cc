#include "directive/transfer/transfer_handler.h"

#include <sys/socket.h>

#include "directive/file/zone_set.h"
#include "dns/record_writer.h"
#include "support/zone_fixture.h"
#include "zones/zone_journal.h"

namespace idetcd::directive {
namespace {

constexpr uint16_t kAxfr = 252;
constexpr uint16_t kIxfr = 251;

// Counts the copies that are made of a zone.
class CountedZones final : public zones::PublishedZones {
 public:
  explicit CountedZones(std::shared_ptr<const ZoneSet> zones) : zones_(std::move(zones)) {}
  Found copyOf(std::span<const uint8_t> name) const override {
    ++copies;
    return zones_->copyOf(name);
  }
  Found headOf(std::span<const uint8_t> name) const override { return zones_->headOf(name); }
  uint64_t version() const override { return zones_->version(); }
  std::vector<Serial> serials() const override { return zones_->serials(); }
  std::unique_ptr<zones::ZoneCopy> changesSince(std::span<const uint8_t> name, uint32_t serial,
                                                const IpAddress& client) const override {
    return zones_->changesSince(name, serial, client);
  }
  void noteGiven(std::span<const uint8_t>, uint32_t serial, const IpAddress&) const override { given = serial; }

  mutable size_t copies = 0;
  mutable uint32_t given = 0;

 private:
  const std::shared_ptr<const ZoneSet> zones_;
};

// Takes streams, and makes them only when it is told to.
struct StreamTaker final : resolve::ReplyDeferrer {
  struct Sink final : resolve::ReplySink {
    explicit Sink(StreamTaker& taker) : to(taker) {}
    void send(std::span<const uint8_t>) override { ADD_FAILURE() << "not a stream"; }
    void sendAll(std::unique_ptr<resolve::MessageStream> stream) override { to.streams.push_back(std::move(stream)); }
    StreamTaker& to;
  };
  std::unique_ptr<resolve::ReplySink> keepClient() override { return std::make_unique<Sink>(*this); }

  // The messages of the first one that is left.
  size_t read() {
    std::vector<uint8_t> room(dns::kMaxMessageSize);
    size_t messages = 0;
    records = 0;
    while (streams.front()->next(room).value() > 0) {
      ++messages;
      records += dns::HeaderView(room.data()).answers();
    }
    streams.pop_front();
    return messages;
  }
  std::deque<std::unique_ptr<resolve::MessageStream>> streams;
  size_t records = 0;  // of what was read last
};

class TransferHandlerTest : public testing::Test {
 protected:
  TransferHandlerTest() {
    set_->put({dns::Name::parse("example.").value(), {}, zones::zoneWith("www A 192.0.2.1\n")});
    set_->put({dns::Name::parse("loading.").value(), {}});
    settings_->push_back({.zones = {dns::Name()}, .to_all = true});
  }

  TransferHandler handler() {
    return TransferHandler(
        {.settings = settings_, .zones = {zones_}, .transfers = transfers_, .log = Logger(), .metrics = registry_.scope()});
  }
  // The rcode; nothing: the client was kept.
  std::optional<uint16_t> ask(TransferHandler& handler, std::string_view name, bool tcp = true) {
    Message message(name, kAxfr);
    return ask(handler, message, tcp);
  }
  std::optional<uint16_t> askChanges(TransferHandler& handler, std::string_view name, uint32_t serial) {
    constexpr size_t kLeastSoa = 22;
    Message message(name, kIxfr);
    uint8_t* const soa = dns::putRecordHead(message.data() + message.size(), dns::kQuestionPointer, dns::RrType::kSoa, 0, kLeastSoa);
    std::fill_n(soa, kLeastSoa, uint8_t{0});
    dns::store32(soa + 2, serial);
    dns::store16(message.data() + 8, 1);
    message.setResponse(static_cast<size_t>(soa + kLeastSoa - message.data()));
    return ask(handler, message, true);
  }
  std::optional<uint16_t> ask(TransferHandler& handler, Message& message, bool tcp) {
    dns::Query query;
    dns::parseQuery(message.data(), message.size(), Message::kSeed, query);
    sockaddr_storage source;
    SocketAddress{.ip = address_, .port = 1}.toSockaddr(&source);
    const resolve::Request request{.source = reinterpret_cast<const sockaddr*>(&source),
                                   .transport = tcp ? resolve::Transport::kTcp : resolve::Transport::kUdp,
                                   .response_limit = 512,
                                   .deferrer = &client_};
    const auto outcome = handler.answer(query, request, 0);
    if (outcome.kind == resolve::QueryOutcome::Kind::kPending) return std::nullopt;
    message.setResponse(outcome.size);
    return message.rcode();
  }

  net::EventLoop loop_;
  records::EpochDomain epochs_;
  resolve::Process process_{Logger(), loop_, epochs_};
  Transfers transfers_{process_};
  metrics::Registry registry_;
  const std::shared_ptr<ZoneSet> set_ = std::make_shared<ZoneSet>(HashSeed{Message::kSeed});
  const std::shared_ptr<std::vector<TransferSettings>> settings_ = std::make_shared<std::vector<TransferSettings>>();
  const std::shared_ptr<CountedZones> zones_ = std::make_shared<CountedZones>(set_);
  IpAddress address_ = IpAddress::v4({192, 0, 2, 1});  // of the client
  StreamTaker client_;
};

TEST_F(TransferHandlerTest, ATransferIsCountedWhenItHasEnded) {
  TransferHandler transfers = handler();
  EXPECT_EQ(ask(transfers, "example."), std::nullopt);
  const TransferCounters& counters = transfers.counters();
  EXPECT_EQ(counters.sent.value(), 0u);
  EXPECT_EQ(client_.read(), 1u);
  EXPECT_EQ(counters.sent.value(), 1u);
}

TEST_F(TransferHandlerTest, ChangesThatAreKnownAreSentAlone) {
  const auto zone = zones::parseZone("@ 300 SOA . . 7 0 0 0 0\n@ NS ns\nns A 192.0.2.53\n");
  const std::shared_ptr<const zones::Zone> before(zone->get(), [](auto*) {});
  auto after = zones::parseZone("@ 300 SOA . . 8 0 0 0 0\n@ NS ns\nns A 192.0.2.53\nwww A 192.0.2.1\n");
  keepChanges(const_cast<zones::Zone&>(**after), before);
  set_->put({dns::Name::parse("example.").value(), {}, std::move(*after)});
  TransferHandler transfers = handler();
  EXPECT_EQ(askChanges(transfers, "example.", 8), 0) << "the SOA alone";
  EXPECT_EQ(askChanges(transfers, "example.", 7), std::nullopt);
  EXPECT_EQ(zones_->given, 0u);
  EXPECT_EQ(client_.read(), 1u);
  EXPECT_EQ(client_.records, 5u) << "four SOAs, and an address";
  EXPECT_EQ(zones_->given, 8u);
  EXPECT_EQ(askChanges(transfers, "example.", 6), std::nullopt);
  client_.read();
  EXPECT_EQ(client_.records, 5u) << "the zone: two SOAs, NS, two addresses";
  EXPECT_EQ(zones_->copies, 1u);
  EXPECT_EQ(transfers.counters().changes.value(), 1u);
  EXPECT_EQ(transfers.counters().sent.value(), 1u);
  EXPECT_EQ(askChanges(transfers, "loading.", 7), 2) << "SERVFAIL";
}

TEST_F(TransferHandlerTest, WhatIsNotTransferred) {
  TransferHandler transfers = handler();
  EXPECT_EQ(ask(transfers, "www.example."), 9) << "NOTAUTH";
  EXPECT_EQ(ask(transfers, "loading."), 2) << "SERVFAIL";
  EXPECT_EQ(ask(transfers, "example.", false), 1) << "FORMERR";
  settings_->front().to_all = false;
  EXPECT_EQ(ask(transfers, "example."), 5) << "REFUSED";
  settings_->push_back({.zones = {dns::Name::parse("example.").value()}, .to_all = true});
  EXPECT_EQ(zones_->copies, 0u);
  EXPECT_EQ(ask(transfers, "example."), std::nullopt) << "the longer zone's rules";
}

TEST_F(TransferHandlerTest, ThereIsABoundOfTransfersAtOnce) {
  TransferHandler transfers = handler();
  for (size_t i = 0; i < Transfers::kMost; ++i) {
    address_ = IpAddress::v4({192, 0, 2, static_cast<uint8_t>(i / Transfers::kMostOfClient)});
    EXPECT_EQ(ask(transfers, "example."), std::nullopt);
  }
  address_ = IpAddress::v4({192, 0, 2, 255});
  EXPECT_EQ(ask(transfers, "example."), 2);
  EXPECT_EQ(zones_->copies, Transfers::kMost) << "none is made without a place";
  client_.read();
  EXPECT_EQ(ask(transfers, "example."), std::nullopt);
}

TEST_F(TransferHandlerTest, AClientHasSomeOfThem) {
  TransferHandler transfers = handler();
  address_ = IpAddress::parse("2001:db8::1").value();
  for (size_t i = 0; i < Transfers::kMostOfClient; ++i) EXPECT_EQ(ask(transfers, "example."), std::nullopt);
  address_ = IpAddress::parse("2001:db8::2").value();
  EXPECT_EQ(ask(transfers, "example."), 2) << "of the same network";
  address_ = IpAddress::parse("2001:db8:0:1::1").value();
  EXPECT_EQ(ask(transfers, "example."), std::nullopt);
  address_ = IpAddress::parse("2001:db8::1").value();
  client_.read();
  EXPECT_EQ(ask(transfers, "example."), std::nullopt);
  EXPECT_EQ(ask(transfers, "example."), 2);
}

TEST_F(TransferHandlerTest, AStreamKeepsItsZone) {
  TransferHandler transfers = handler();
  EXPECT_EQ(ask(transfers, "example."), std::nullopt);
  set_->erase(dns::Name::parse("example.").value());
  EXPECT_EQ(client_.read(), 1u);
  EXPECT_EQ(ask(transfers, "example."), 9);
}

}  // namespace
}  // namespace idetcd::directive
