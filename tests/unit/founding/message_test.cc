#include "founding/message.h"

#include <gtest/gtest.h>

namespace idetcd::founding {
namespace {

const std::string kUuid = "8d3c2a71-0000-4000-8000-000000000001";
const std::string kOther = "8d3c2a71-0000-4000-8000-000000000002";
const SocketAddress kAddress{IpAddress::v4({192, 0, 2, 1}), 2390};
const SocketAddress kSecond{*IpAddress::parse("2001:db8::1"), 2391};

const Machine kMachine{{1234, kUuid}, {kAddress, kSecond}, true, true, 77, 5, {}, false};
const Value kValue{kOther, {{1, kOther}, {1234, kUuid}}, {{kOther, kAddress}}, 78};
const Ballot kBallot{3, kUuid};

std::vector<Body> bodies() {
  return {HelloRequest{kMachine},
          HelloResponse{kMachine, {kAddress, kSecond}, std::nullopt},
          HelloResponse{kMachine, {}, kValue},
          Prepare{kOther, kBallot},
          Promise{kMachine, kBallot, std::nullopt},
          Promise{kMachine, kBallot, Acceptance{{2, kOther}, kValue}},
          Accept{kOther, {kBallot, kValue}},
          Accepted{kUuid, kBallot},
          Refused{kBallot, {4, kOther}},
          Decided{kOther, kValue}};
}

TEST(Message, IsReadAsItWasWritten) {
  for (const Body& body : bodies()) {
    const Message message{2390, body};
    EXPECT_EQ(decode(encode(message)), message) << body.index();
  }
}

TEST(Message, WhatIsCutOffIsNeverTheSameMessage) {
  for (const Body& body : bodies()) {
    const Message message{2390, body};
    const std::string bytes = encode(message);
    for (size_t size = 0; size < bytes.size(); ++size) EXPECT_NE(decode(bytes.substr(0, size)), message) << size;
  }
}

TEST(Message, ValuesThatNoMachineSendsAreRefused) {
  const auto isRefused = [](const Body& body) { return !decode(encode(Message{2390, body})); };
  EXPECT_FALSE(decode(encode(Message{0, Accepted{kUuid, kBallot}})));
  EXPECT_TRUE(isRefused(Accepted{"me", kBallot}));
  EXPECT_TRUE(isRefused(Accepted{kUuid, {0, kUuid}}));
  EXPECT_TRUE(isRefused(Accepted{kUuid, {UINT64_MAX, kUuid}}));
  EXPECT_TRUE(isRefused(Accepted{kUuid, {1, "he"}}));
  Machine machine = kMachine;
  machine.addresses.clear();
  EXPECT_TRUE(isRefused(HelloRequest{machine}));
  machine.addresses.assign(kMaxAddresses + 1, kAddress);
  EXPECT_TRUE(isRefused(HelloRequest{machine}));
  machine = kMachine;
  machine.token = -1;
  EXPECT_TRUE(isRefused(HelloRequest{machine}));
  EXPECT_TRUE(isRefused(HelloResponse{kMachine, std::vector<SocketAddress>(kMaxPeers + 1, kAddress), std::nullopt}));
  for (const auto& spoil : std::initializer_list<std::function<void(Value&)>>{
           [](Value& value) { value.cluster = "ours"; }, [](Value& value) { value.members.clear(); },
           [](Value& value) { value.members[0].uuid.clear(); },
           [](Value& value) { value.members.assign(kMaxMachines + 1, value.members[0]); },
           [](Value& value) { value.voters.clear(); }, [](Value& value) { value.voters.assign(3, value.voters[0]); },
           [](Value& value) { value.voters[0].address.port = 0; }, [](Value& value) { value.token_base = 0; }}) {
    Value value = kValue;
    spoil(value);
    EXPECT_TRUE(isRefused(Decided{kUuid, value}));
  }
}

TEST(Message, TheLargestFoundingFitsInAFrame) {
  Value value = kValue;
  value.members.assign(kMaxMachines, {INT64_MAX, kUuid});
  EXPECT_LT(encode(Message{2390, Accept{kOther, {kBallot, value}}}).size(), (size_t{1} << 20) - 100);
}

TEST(Record, IsReadAsItWasWritten) {
  for (const Record& record :
       {Record{kUuid, {}, {}, {}}, Record{kUuid, kBallot, {}, {}},
        Record{kUuid, kBallot, Acceptance{kBallot, kValue}, {}}, Record{kUuid, {}, {}, kValue}}) {
    const auto read = decodeRecord(encode(record), kUuid);
    ASSERT_TRUE(read);
    EXPECT_EQ(*read, record);
  }
}

TEST(Record, ADamagedOneOrAnothersIsRefused) {
  const std::string bytes = encode(Record{kUuid, kBallot, Acceptance{kBallot, kValue}, {}});
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string changed = bytes;
    changed[i] = static_cast<char>(changed[i] ^ 0x10);
    EXPECT_FALSE(decodeRecord(changed, kUuid)) << i;
    EXPECT_FALSE(decodeRecord(bytes.substr(0, i), kUuid)) << i;
  }
  EXPECT_EQ(decodeRecord(bytes, kOther).error().message, "the record of the founding is of another machine");
}

TEST(Value, NumbersAreThePlacesOfTheMembers) {
  EXPECT_EQ(kValue.numberOf(kOther), 1);
  EXPECT_EQ(kValue.numberOf(kUuid), 2);
  EXPECT_EQ(kValue.numberOf("8d3c2a71-0000-4000-8000-000000000003"), 0);
}

TEST(Value, TheNumberOfVotersFollowsThatOfMachines) {
  for (const auto& [machines, voters] : {std::pair(0, 1), {1, 1}, {2, 1}, {3, 3}, {9, 3}, {10, 5}, {1000, 5}})
    EXPECT_EQ(votersFor(static_cast<size_t>(machines)), static_cast<size_t>(voters)) << machines;
}

TEST(Value, OfTwoClustersThatAreAsLargeTheYoungerOneDissolves) {
  Value later = kValue;
  later.cluster = kUuid;
  EXPECT_NE(yields(kValue, later), yields(later, kValue));  // founded by the same machines
  for (Member& member : later.members) ++member.start;
  EXPECT_TRUE(yields(later, kValue));
  EXPECT_FALSE(yields(kValue, later));
}

TEST(Value, OneClockDoesNotSayWhichClusterStays) {
  const auto founded = [](std::initializer_list<int64_t> starts, const std::string& cluster) {
    Value value = kValue;
    value.cluster = cluster;
    value.members.clear();
    for (const int64_t start : starts) value.members.push_back({start, kUuid});
    return value;
  };
  constexpr int64_t kYears = 300'000'000'000'000'000;
  for (const auto& [stays, dissolves] : {
           std::pair{founded({1, 2, 3, kYears}, kOther), founded({5, 6}, kUuid)},
           std::pair{founded({1, 2, kYears}, kOther), founded({5, 6, 7}, kUuid)},
           std::pair{founded({1, 2, 3}, kOther), founded({-kYears, 6, 7}, kUuid)},
       }) {
    EXPECT_TRUE(yields(dissolves, stays));
    EXPECT_FALSE(yields(stays, dissolves));
  }
}

}  // namespace
}  // namespace idetcd::founding
