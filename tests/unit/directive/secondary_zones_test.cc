#include "directive/secondary/secondary_zones.h"

#include <gtest/gtest.h>

#include "../net/sockets.h"
#include "dns/message_reader.h"
#include "dns/record_writer.h"
#include "support/zone_fixture.h"
#include "zones/transfer_writer.h"

namespace idetcd::directive {
namespace {

using namespace std::chrono_literals;

// A server of one zone, on the loop of the test.
class Primary final : public net::StreamHandler {
 public:
  Primary(net::EventLoop& loop, std::shared_ptr<const zones::Zone> zone, const char* ip = "127.0.0.1")
      : loop_(loop), zone_(std::move(zone)) {
    listener_ = net::TcpListener::listen(loop, net::test::address(ip, 0), false, [this](auto connection) {
                  connections_.push_back(std::move(connection));
                  connections_.back()->start(*this);
                }).value();
  }
  SocketAddress address() const { return listener_->localAddress(); }
  void setZone(std::shared_ptr<const zones::Zone> zone) { zone_ = std::move(zone); }

  // The SOA and all records; to IXFR with another rcode, if there is one for that.
  void onData(std::span<const uint8_t> bytes) override {
    std::vector<uint8_t> message(bytes.begin() + dns::kLengthPrefix, bytes.end());
    const size_t size = message.size();
    message.resize(dns::kMaxMessageSize);
    dns::Query query;
    dns::parseQuery(message.data(), size, Message::kSeed, query);
    names.push_back(dns::Name::fromWire(query.name()));
    const bool asks_changes = dns::isType(query.qtype, dns::RrType::kIxfr);
    if (asks_changes && closes_at_ixfr) return loop_.post([this] { connections_.pop_back(); });
    zones::TransferWriter writer(query, 0, zones::makeCopy(zone_));
    std::vector<uint8_t> answer(dns::kLengthPrefix + dns::kMaxMessageSize);
    size_t answer_size = writer.next(std::span(answer).subspan(dns::kLengthPrefix));
    if (asks_changes) answer[dns::kLengthPrefix + 3] |= ixfr_rcode;
    if (asks_changes && sends_soa_alone) dns::store16(&answer[dns::kLengthPrefix + 6], 1);
    if (asks_changes && breaks_off_changes) {
      answer_size = beginChanges(std::span(answer).subspan(dns::kLengthPrefix));
      loop_.post([this] { connections_.pop_back(); });
    }
    answer.resize(dns::kLengthPrefix + answer_size);
    if (change) change(std::span(answer).subspan(dns::kLengthPrefix));
    const auto rest = in_two ? takeLastSoa(answer) : std::vector<uint8_t>();
    send(std::move(answer));
    if (in_two) send(rest);
    ++questions;
  }
  void onEnd() override {}
  void onDrained() override {}
  void onError() override {}

  size_t questions = 0;  // that were answered
  std::vector<dns::Name> names;  // of all questions
  uint8_t ixfr_rcode = 0;
  bool closes_at_ixfr = false;
  bool breaks_off_changes = false;
  bool sends_soa_alone = false;  // to IXFR
  bool in_two = false;  // each answer: the last SOA in a message of its own, without a question
  std::function<void(std::span<uint8_t>)> change{};  // of each answer

 private:
  void send(std::vector<uint8_t> message) {
    dns::store16(message.data(), static_cast<uint16_t>(message.size() - dns::kLengthPrefix));
    connections_.back()->write(std::move(message));
  }

  // What it has of the answer is its header.
  std::vector<uint8_t> takeLastSoa(std::span<uint8_t> answer) const {
    constexpr size_t kLeastSoa = 22;
    uint8_t* const counts = &answer[dns::kLengthPrefix + 4];
    dns::store16(counts + 2, static_cast<uint16_t>(dns::load16(counts + 2) - 1));
    std::vector<uint8_t> rest(answer.begin(), answer.begin() + dns::kLengthPrefix + 4);
    rest.insert(rest.end(), {0, 0, 0, 1, 0, 0, 0, 0});
    rest.insert(rest.end(), zone_->origin().wire().begin(), zone_->origin().wire().end());
    rest.insert(rest.end(), {0, 6, 0, 1, 0, 0, 0, 1, 0, kLeastSoa});
    rest.resize(rest.size() + kLeastSoa);
    dns::store32(&rest[rest.size() - 20], zone_->serial());
    return rest;
  }

  // In place of an answer's records: the SOA, and that of serial 1, from which changes would lead to it.
  size_t beginChanges(std::span<uint8_t> answer) const {
    constexpr size_t kLeastSoa = 22;
    dns::store16(&answer[6], 2);
    std::fill_n(&answer[8], 4, uint8_t{0});
    uint8_t* end = &answer[dns::kHeaderSize + zone_->origin().size() + 4];
    for (const uint32_t serial : {zone_->serial(), uint32_t{1}}) {
      end = dns::putRecordHead(end, dns::kQuestionPointer, dns::RrType::kSoa, 0, kLeastSoa);
      std::fill_n(end, kLeastSoa, uint8_t{0});
      dns::store32(end + 2, serial);
      end += kLeastSoa;
    }
    return static_cast<size_t>(end - answer.data());
  }

  net::EventLoop& loop_;
  std::shared_ptr<const zones::Zone> zone_;
  std::unique_ptr<net::TcpListener> listener_;
  std::vector<std::unique_ptr<net::TcpConnection>> connections_;
};

class SecondaryZonesTest : public testing::Test {
 protected:
  void TearDown() override { executor_->finish(60s); }

  std::unique_ptr<SecondaryZones> follow(const SocketAddress& primary) {
    SecondarySettings settings{.zones = {name_}, .primaries = {primary}};
    SecondaryZones::putKept(settings, kept_, *set_);
    return follow(settings, set_);
  }
  std::unique_ptr<SecondaryZones> follow(const SecondarySettings& settings, const std::shared_ptr<ZoneSet>& set) {
    return follow(std::vector{settings}, set);
  }
  std::unique_ptr<SecondaryZones> follow(const std::vector<SecondarySettings>& settings, const std::shared_ptr<ZoneSet>& set) {
    return std::make_unique<SecondaryZones>(
        SecondaryZones::Context{.loop = loop_, .set = set, .kept = kept_, .places = places_, .executor = executor_, .log = Logger(), .metrics = registry_.scope(),
                                .keeps_changes = keeps_changes_},
        settings);
  }
  std::shared_ptr<const zones::Zone> served() const { return set_->table()->find(name_.wire())->zone; }
  static std::shared_ptr<const zones::Zone> zone(uint32_t serial, int retry_seconds = 3600) {
    auto made = zones::parseZone(fmt::format("$TTL 1\n@ SOA ns m {} 3600 {} 3600 1\n@ NS ns\n", serial, retry_seconds));
    EXPECT_TRUE(made);
    return std::move(*made);
  }
  double count(std::string_view family) const {
    double sum = 0;
    registry_.visit([&](const metrics::Sample& sample) { sum += sample.family.name == family ? sample.value : 0; });
    return sum;
  }

  // Runs the loop until `condition`, which is looked at 100 times a second.
  void runUntil(const std::function<bool()>& condition) {
    const auto end = BootClock::now() + 60s;
    net::Timer poll(loop_, [&] {
      if (condition() || BootClock::now() > end) loop_.stop();
    });
    poll.start(10ms, 10ms);
    loop_.run();
    EXPECT_TRUE(condition());
  }

  // What comes of the question for the serial.
  Result<zones::TransferReader::Messages> asked(const SocketAddress& primary) {
    std::optional<Result<zones::TransferReader::Messages>> result;
    SecureRandom random;
    IncomingTransfer transfer(loop_, random, executor_, {.zone = name_, .primary = primary},
                              [&](auto got) { result = std::move(got); });
    transfer.start();
    runUntil([&] { return result.has_value(); });
    return std::move(*result);
  }

  // Until the copy has it.
  void publish(Primary& primary, uint32_t serial, SecondaryZones& zones) {
    primary.setZone(zone(serial));
    zones.onNotify(name_, primary.address().ip);
    runUntil([&] { return served()->serial() == serial; });
  }

  bool keeps_changes_ = false;
  const dns::Name name_ = dns::Name::parse("example.").value();
  net::EventLoop loop_;
  records::EpochDomain epochs_;
  resolve::Process process_{Logger(), loop_, epochs_};
  KeptCopies kept_{process_};
  SecondaryPlaces places_{process_};
  const std::shared_ptr<Executor> executor_ = std::make_shared<Executor>();
  const std::shared_ptr<ZoneSet> set_ = std::make_shared<ZoneSet>(HashSeed{Message::kSeed});
  metrics::Registry registry_;
};

TEST_F(SecondaryZonesTest, FollowsAPrimary) {
  Primary primary(loop_, zone(1));
  const auto zones = follow(primary.address());
  EXPECT_EQ(served(), nullptr);
  runUntil([&] { return served() != nullptr; });
  EXPECT_EQ(served()->serial(), 1u);
  publish(primary, 3, *zones);
  EXPECT_EQ(count("idetcd_secondary_transfers_total"), 2);
  EXPECT_EQ(count("idetcd_secondary_serial"), 3);
  EXPECT_EQ(count("idetcd_secondary_failures_total"), 0);
}

TEST_F(SecondaryZonesTest, WithoutChangesThePrimaryIsAskedForAll) {
  Primary primary(loop_, zone(1));
  primary.ixfr_rcode = static_cast<uint8_t>(dns::Rcode::kNotImp);
  const auto zones = follow(primary.address());
  runUntil([&] { return served() != nullptr; });
  publish(primary, 3, *zones);
  EXPECT_EQ(primary.questions, 5u) << "SOA and AXFR; SOA, IXFR and AXFR";
  EXPECT_EQ(count("idetcd_secondary_failures_total"), 0);
}

TEST_F(SecondaryZonesTest, ASoaAloneInPlaceOfChangesLeadsToAllAtOnce) {
  Primary primary(loop_, zone(1));
  primary.sends_soa_alone = true;
  const auto zones = follow(primary.address());
  runUntil([&] { return served() != nullptr; });
  const auto begin = BootClock::now();
  publish(primary, 3, *zones);
  EXPECT_LT(BootClock::now() - begin, IncomingTransfer::kSilence);
  EXPECT_EQ(primary.questions, 5u) << "SOA and AXFR; SOA, IXFR and AXFR";
  EXPECT_EQ(count("idetcd_secondary_failures_total"), 0);
}

// The serials of changes, and then nothing.
TEST_F(SecondaryZonesTest, APrimaryThatBreaksOffInChangesIsAskedForAllTheNextTime) {
  Primary primary(loop_, zone(1, 1));
  primary.breaks_off_changes = true;
  const auto zones = follow(primary.address());
  runUntil([&] { return served() != nullptr; });
  publish(primary, 3, *zones);
  EXPECT_EQ(primary.questions, 6u) << "SOA and AXFR; SOA and IXFR; SOA and AXFR";
  EXPECT_EQ(count("idetcd_secondary_failures_total"), 1);
}

TEST_F(SecondaryZonesTest, APrimaryThatDoesNotAnswerForChangesIsNotAskedForThemAgain) {
  Primary primary(loop_, zone(1));
  primary.closes_at_ixfr = true;
  const auto zones = follow(primary.address());
  runUntil([&] { return served() != nullptr; });
  for (const uint32_t serial : {2, 3}) publish(primary, serial, *zones);
  EXPECT_EQ(primary.questions, 6u) << "three times SOA and AXFR";
  EXPECT_EQ(count("idetcd_secondary_failures_total"), 0);
}

TEST_F(SecondaryZonesTest, HoweverManyNotifyItThereIsOneQuestionASecond) {
  Primary primary(loop_, zone(1));
  const auto begin = BootClock::now();
  const auto zones = follow(primary.address());
  runUntil([&] {
    zones->onNotify(name_, primary.address().ip);
    return primary.questions >= 5;  // SOA and AXFR, and three of the serial
  });
  EXPECT_GE(BootClock::now() - begin, 3s);
}

TEST_F(SecondaryZonesTest, ThePrimaryThatNotifiesIsAskedFirst) {
  Primary first(loop_, zone(1));
  Primary second(loop_, zone(2), "127.0.0.2");
  const SecondarySettings settings{.zones = {name_}, .primaries = {first.address(), second.address()}};
  SecondaryZones::putKept(settings, kept_, *set_);
  const auto zones = follow(settings, set_);
  runUntil([&] { return served() != nullptr; });
  EXPECT_EQ(served()->serial(), 1u);
  zones->onNotify(name_, second.address().ip);
  runUntil([&] { return served()->serial() == 2; });
  EXPECT_EQ(first.questions, 2u);
}

TEST_F(SecondaryZonesTest, ACopyDoesNotExpireBeforeItIsAskedForAgain) {
  auto made = zones::parseZone("$TTL 1\n@ SOA ns m 1 2 60 0 1\n@ NS ns\n");
  ASSERT_TRUE(made);
  Primary primary(loop_, std::shared_ptr<const zones::Zone>(std::move(*made)));
  const auto zones = follow(primary.address());
  runUntil([&] { return served() != nullptr; });
  const auto begin = BootClock::now();
  bool has_expired = false;
  runUntil([&] {
    has_expired = has_expired || served() == nullptr;
    return primary.questions >= 3;
  });
  EXPECT_FALSE(has_expired);
  EXPECT_GE(BootClock::now() - begin, 1s) << "else it was asked for since it had expired";
}

TEST_F(SecondaryZonesTest, AZoneWaitsForAPlaceOfTheProcess) {
  Primary primary(loop_, zone(1));
  std::vector<SecondaryPlaces::Place> others;
  for (size_t i = 0; i < SecondaryPlaces::kMost; ++i) others.push_back(places_.enterTransfer());
  EXPECT_EQ(places_.enterTransfer(), nullptr);
  const auto zones = follow(primary.address());
  int looks = 0;
  runUntil([&] { return ++looks >= 30; });
  EXPECT_EQ(primary.questions, 1u) << "its serial";
  others.pop_back();
  runUntil([&] { return served() != nullptr; });
  EXPECT_NE(places_.enterTransfer(), nullptr) << "it is given back";
}

TEST_F(SecondaryZonesTest, APrimaryHasPlacesOfItsOwn) {
  const SocketAddress one = net::test::address("127.0.0.1", 53);
  std::vector<SecondaryPlaces::Place> places;
  for (size_t i = 0; i < SecondaryPlaces::kOfPrimary; ++i) places.push_back(places_.enter(one));
  EXPECT_NE(places.back(), nullptr);
  EXPECT_EQ(places_.enter(one), nullptr);
  EXPECT_NE(places_.enter(net::test::address("127.0.0.2", 53)), nullptr);
  places.pop_back();
  EXPECT_NE(places_.enter(one), nullptr);
}

TEST_F(SecondaryZonesTest, SilentPrimariesHoldUpNoneButTheirOwnZones) {
  std::vector<std::unique_ptr<net::TcpConnection>> connections;
  const auto silent = [&](const char* ip) {
    return net::TcpListener::listen(loop_, net::test::address(ip, 0), false, [&](auto connection) {
             connections.push_back(std::move(connection));
           }).value();
  };
  std::vector<SecondarySettings> settings;
  std::vector<std::unique_ptr<net::TcpListener>> listeners;
  for (int i = 0; i < 6; ++i) {
    listeners.push_back(silent(fmt::format("127.0.0.{}", i + 2).c_str()));
    settings.push_back({.primaries = {listeners.back()->localAddress()}});
    for (int k = 0; k < 10; ++k) settings.back().zones.push_back(dns::Name::parse(fmt::format("z{}.s{}.", k, i)).value());
  }
  Primary primary(loop_, zone(1));
  settings.push_back({.zones = {name_}, .primaries = {primary.address()}});
  for (const auto& one : settings) SecondaryZones::putKept(one, kept_, *set_);
  const auto begin = BootClock::now();
  const auto zones = follow(settings, set_);
  runUntil([&] { return served() != nullptr; });
  ASSERT_NE(served(), nullptr);
  publish(primary, 2, *zones);
  EXPECT_LT(BootClock::now() - begin, IncomingTransfer::kSilence) << "no silent one has been given up yet";
  EXPECT_EQ(connections.size(), listeners.size() * SecondaryPlaces::kOfPrimary);
}

TEST_F(SecondaryZonesTest, ASilentPrimaryIsAskedAfterTheOthers) {
  Primary first(loop_, zone(1));
  Primary second(loop_, zone(1), "127.0.0.2");
  places_.note(first.address(), false);
  const SecondarySettings settings{.zones = {name_}, .primaries = {first.address(), second.address()}};
  SecondaryZones::putKept(settings, kept_, *set_);
  const auto zones = follow(settings, set_);
  runUntil([&] { return served() != nullptr; });
  EXPECT_EQ(first.questions, 0u);
  first.setZone(zone(2));
  zones->onNotify(name_, first.address().ip);
  runUntil([&] { return served()->serial() == 2; });
  EXPECT_FALSE(places_.isSilent(first.address())) << "it has answered";
}

TEST_F(SecondaryZonesTest, APrimaryThatCannotBeReachedIsSilent) {
  auto primary = std::make_unique<Primary>(loop_, zone(1));
  const SocketAddress address = primary->address();
  primary.reset();
  const auto zones = follow(address);
  EXPECT_FALSE(places_.isSilent(address));
  runUntil([&] { return places_.isSilent(address); });
}

TEST_F(SecondaryZonesTest, ANotifiedZoneIsNext) {
  Primary primary(loop_, zone(1));
  std::vector<SecondaryPlaces::Place> others;
  for (size_t i = 0; i < SecondaryPlaces::kOfPrimary; ++i) others.push_back(places_.enter(primary.address()));
  const dns::Name other = dns::Name::parse("other.").value();
  const SecondarySettings settings{.zones = {other, name_}, .primaries = {primary.address()}};
  SecondaryZones::putKept(settings, kept_, *set_);
  const auto zones = follow(settings, set_);
  zones->onNotify(name_, primary.address().ip);
  others.pop_back();
  runUntil([&] { return primary.questions >= 1; });
  EXPECT_EQ(primary.names.front(), name_);
}

TEST_F(SecondaryZonesTest, WithoutAThreadItIsAFailure) {
  Primary primary(loop_, zone(1));
  executor_->finish(60s);
  const auto zones = follow(primary.address());
  runUntil([&] { return count("idetcd_secondary_failures_total") >= 1; });
  EXPECT_EQ(primary.questions, 2u);
}

TEST_F(SecondaryZonesTest, AnOlderSerialIsNotTaken) {
  Primary primary(loop_, zone(3));
  const auto zones = follow(primary.address());
  runUntil([&] { return served() != nullptr; });
  primary.setZone(zone(2));
  const auto asked_at = BootClock::now();
  zones->onNotify(name_, primary.address().ip);
  runUntil([&] { return kept_.find({"example. " + primary.address().toString()}).confirmed_at >= asked_at; });
  EXPECT_EQ(served()->serial(), 3u);
}

TEST_F(SecondaryZonesTest, OnlyTheFirstMessageNeedsAQuestion) {
  Primary primary(loop_, zone(1));
  primary.in_two = true;
  const auto zones = follow(primary.address());
  runUntil([&] { return served() != nullptr; });
  EXPECT_EQ(count("idetcd_secondary_failures_total"), 0);
}

TEST_F(SecondaryZonesTest, WhatDoesNotAnswerTheQuestionIsNotBelieved) {
  Primary primary(loop_, zone(2));
  const auto failure = [&](size_t index, uint8_t value) {
    primary.change = [&](std::span<uint8_t> answer) {
      answer[index] = value;
      dns::store16(&answer[6], 1);  // the last SOA is left out
    };
    const auto result = asked(primary.address());
    return result ? "" : result.error().message;
  };
  const size_t type = dns::kHeaderSize + name_.size();
  const size_t answered = type + 4;
  EXPECT_EQ(failure(2, 0xa4), "a message is no answer to what was asked") << "NOTIFY";
  EXPECT_EQ(failure(2, 0xac), "a message is no answer to what was asked") << "UPDATE";
  EXPECT_EQ(failure(2, 0x80), "its answer is not authoritative");
  EXPECT_EQ(failure(5, 0), "a message answers another question") << "none";
  EXPECT_EQ(failure(dns::kHeaderSize + 1, 'x'), "a message answers another question");
  EXPECT_EQ(failure(type + 1, 2), "a message answers another question") << "NS";
  EXPECT_EQ(failure(type + 3, 3), "a message answers another question") << "CH";
  EXPECT_EQ(failure(answered + 5, 3), "it answers without the zone's SOA") << "CH";
  primary.change = nullptr;
  EXPECT_TRUE(asked(primary.address()));
}

TEST_F(SecondaryZonesTest, CountsFailuresAndAsksAgain) {
  auto primary = std::make_unique<Primary>(loop_, zone(1));
  const SocketAddress address = primary->address();
  primary.reset();
  const auto zones = follow(address);
  runUntil([&] { return count("idetcd_secondary_failures_total") >= 2; });
  EXPECT_EQ(served(), nullptr);
}

TEST_F(SecondaryZonesTest, ChangesAreKeptForOthers) {
  keeps_changes_ = true;
  Primary primary(loop_, zone(1));
  const auto zones = follow(primary.address());
  runUntil([&] { return served() != nullptr; });
  publish(primary, 3, *zones);
  const auto changes = set_->changesSince(name_.wire(), 1, primary.address().ip);
  ASSERT_NE(changes, nullptr);
  EXPECT_EQ(changes->serial(), 3u);
}

TEST_F(SecondaryZonesTest, ACopyGoesOnWithAnotherConfiguration) {
  Primary primary(loop_, zone(1));
  auto zones = follow(primary.address());
  runUntil([&] { return served() != nullptr; });
  const auto first = served();
  zones.reset();
  zones = follow(primary.address());
  EXPECT_EQ(served(), first);
}

TEST_F(SecondaryZonesTest, ACopyGoesOnWithOtherPrimariesAndAnotherBlock) {
  Primary primary(loop_, zone(1));
  SecondarySettings settings{.zones = {name_}, .primaries = {primary.address()}, .block = "one"};
  SecondaryZones::putKept(settings, kept_, *set_);
  auto zones = follow(settings, set_);
  runUntil([&] { return served() != nullptr; });
  const auto first = served();
  const auto kept = [&](const SecondarySettings& next) {
    const auto set = std::make_shared<ZoneSet>(HashSeed{Message::kSeed});
    SecondaryZones::putKept(next, kept_, *set);
    return set->table()->zones().front().zone;
  };
  Primary second(loop_, zone(1), "127.0.0.2");
  settings.primaries = {second.address()};
  EXPECT_EQ(kept(settings), first);
  zones.reset();
  zones = follow(settings, set_);
  EXPECT_EQ(served(), first);
  settings.block = "another";
  EXPECT_EQ(kept(settings), nullptr) << "the second primary's zone may be another";
  runUntil([&] { return served() != first; });
  EXPECT_EQ(served()->serial(), 1u) << "the same serial may stand for another zone";
  EXPECT_EQ(kept(settings), served());
  settings.key = "key.";
  EXPECT_EQ(kept(settings), nullptr) << "it may be another zone";
}

TEST_F(SecondaryZonesTest, ACopyThatComesDuringAReloadIsNotLost) {
  Primary primary(loop_, zone(4));
  auto zones = follow(primary.address());
  runUntil([&] { return served() != nullptr; });
  const SecondarySettings settings{.zones = {name_}, .primaries = {primary.address()}};
  const auto next = std::make_shared<ZoneSet>(HashSeed{Message::kSeed});
  SecondaryZones::putKept(settings, kept_, *next);
  primary.setZone(zone(5));
  zones->onNotify(name_, primary.address().ip);
  runUntil([&] { return served()->serial() == 5; });
  zones.reset();
  zones = follow(settings, next);
  EXPECT_EQ(next->table()->zones().front().zone->serial(), 5u);
}

}  // namespace
}  // namespace idetcd::directive
