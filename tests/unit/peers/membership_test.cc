#include "peers/membership.h"

#include <gtest/gtest.h>

namespace idetcd::peers {
namespace {

using namespace std::chrono_literals;

// Machine "aN" is at 192.0.2.N, member N of etcd, and was started as the Nth.
SocketAddress addressOf(uint8_t n) { return {IpAddress::v4({192, 0, 2, n}), 2390}; }
std::string uuidOf(uint8_t n) { return fmt::format("a{}", n); }
Voter voter(uint8_t n, bool learner = false) { return {uuidOf(n), addressOf(n), n, learner}; }
View::Member answering(uint8_t n) { return {.voter = voter(n), .answers = true, .silent = 0s}; }
View::Member silent(uint8_t n, std::chrono::seconds since = 11s) {
  return {.voter = voter(n), .answers = false, .silent = since};
}
View::Member learner(uint8_t n, bool answers) { return {.voter = voter(n, true), .answers = answers, .silent = 0s}; }
Machine machine(uint8_t n, bool stands_by, bool durable = true) {
  return {uuidOf(n), addressOf(n), n, durable, stands_by};
}

// Published as it is; all voters are machines, and so are `standbys`.
View view(std::vector<View::Member> members, std::vector<uint8_t> standbys,
          std::optional<Change> change = std::nullopt) {
  View made{.members = std::move(members), .self = 1, .published = {.cluster = "c", .change = std::move(change)}};
  for (const View::Member& member : made.members) {
    made.published.voters.push_back(member.voter);
    made.machines.push_back(machine(static_cast<uint8_t>(member.voter.member), false));
  }
  for (const uint8_t n : standbys) made.machines.push_back(machine(n, true));
  return made;
}

std::string describe(const Step& step) {
  const auto describeChange = [](const Published& value) {
    return value.change ? fmt::format("begin +{} -{}", value.change->add, value.change->remove)
                        : fmt::format("publish {}", value.voters.size());
  };
  if (const auto* publish = std::get_if<step::Publish>(&step.what)) return describeChange(publish->value);
  if (const auto* add = std::get_if<step::Add>(&step.what)) return "add " + add->machine.uuid;
  if (const auto* promote = std::get_if<step::Promote>(&step.what)) return "promote " + promote->voter.uuid;
  if (const auto* remove = std::get_if<step::Remove>(&step.what)) return "remove " + remove->voter.uuid;
  return "wait";
}
std::string next(const View& view) { return describe(nextStep(view)); }

TEST(Membership, WhatIsAsItShouldBeStaysSo) {
  EXPECT_EQ(next(view({answering(1)}, {})), "wait");
  EXPECT_EQ(next(view({answering(1)}, {2})), "wait");
  EXPECT_EQ(next(view({answering(1), answering(2), answering(3)}, {4, 5})), "wait");
  EXPECT_EQ(nextStep(view({answering(1), answering(2), answering(3)}, {4, 5})).why, "");
  EXPECT_EQ(next(view({answering(1), answering(2), silent(3, 9s)}, {4, 5})), "wait");
}

TEST(Membership, WhatIsNotPublishedIs) {
  View one = view({answering(1), answering(2), answering(3)}, {});
  one.published.voters.pop_back();
  EXPECT_EQ(next(one), "publish 3");
  one.published = {};
  EXPECT_EQ(next(one), "publish 3");
}

TEST(Membership, ASilentVoterIsReplacedStepByStep) {
  const Change change{.add = uuidOf(4), .remove = uuidOf(3)};
  EXPECT_EQ(next(view({answering(1), answering(2), silent(3)}, {5, 4})), "begin +a4 -a3") << "by the oldest";
  EXPECT_EQ(next(view({answering(1), answering(2), silent(3)}, {5, 4}, change)), "add a4");
  const View added = view({answering(1), answering(2), silent(3), learner(4, false)}, {5}, change);
  View unpublished = added;
  unpublished.published.voters.pop_back();
  EXPECT_EQ(next(unpublished), "begin +a4 -a3") << "the learner is published, so that it starts";
  EXPECT_EQ(next(added), "wait");
  EXPECT_EQ(next(view({answering(1), answering(2), silent(3), learner(4, true)}, {5}, change)), "promote a4");
  EXPECT_EQ(next(view({answering(1), answering(2), silent(3), answering(4)}, {5}, change)), "remove a3");
  EXPECT_EQ(next(view({answering(1), answering(2), answering(4)}, {5}, change)), "publish 3");
}

TEST(Membership, NoVoterIsRemovedBeforeItsSuccessorHasCaughtUp) {
  const Change change{.add = uuidOf(4), .remove = uuidOf(3)};
  EXPECT_EQ(next(view({answering(1), answering(2), silent(3), learner(4, false)}, {}, change)), "wait");
  EXPECT_EQ(next(view({answering(1), answering(2), silent(3), silent(4, 0s)}, {}, change)), "wait")
      << "2 of 4 are no quorum";
}

TEST(Membership, NothingChangesWithoutAQuorum) {
  const Change change{.add = uuidOf(4), .remove = uuidOf(3)};
  EXPECT_EQ(next(view({answering(1), silent(2), silent(3)}, {4, 5})), "wait");
  EXPECT_EQ(next(view({answering(1), silent(2), silent(3), learner(4, true)}, {}, change)), "wait");
  EXPECT_EQ(next(view({answering(1), silent(2)}, {3})), "wait");
  EXPECT_EQ(next(View{}), "wait");
}

TEST(Membership, AVoterThatIsBackBeforeItsSuccessorVotesStays) {
  const Change change{.add = uuidOf(4), .remove = uuidOf(3)};
  EXPECT_EQ(next(view({answering(1), answering(2), answering(3)}, {4}, change)), "publish 3");
  EXPECT_EQ(next(view({answering(1), answering(2), answering(3), learner(4, true)}, {}, change)), "remove a4");
  EXPECT_EQ(next(view({answering(1), answering(2), answering(3), answering(4)}, {}, change)), "remove a3");
}

TEST(Membership, WhereAnEvenNumberVotesASilentOneIsNotReplaced) {
  EXPECT_EQ(next(view({answering(1), answering(2), answering(3), silent(4)}, {5, 6})), "begin + -a4") << "3 are enough";
  EXPECT_EQ(next(view({answering(1), answering(2), answering(3), silent(4)}, {5, 6, 7, 8, 9, 10})), "begin +a5 -");
  EXPECT_EQ(next(view({answering(1), answering(2), answering(3), silent(4), answering(5)}, {6, 7, 8, 9, 10})),
            "begin +a6 -a4");
}

TEST(Membership, AVoterThatIsBackStaysWhereWithoutItOneFailureLessWouldBeBorne) {
  const Change change{.add = uuidOf(5), .remove = uuidOf(3)};  // begun when there were four
  EXPECT_EQ(next(view({answering(1), answering(2), answering(3), answering(4), answering(5)}, {}, change)),
            "publish 5");
  EXPECT_EQ(next(view({answering(1), answering(2), silent(3), answering(4), answering(5)}, {}, change)), "remove a3");
}

TEST(Membership, ALearnerThatDoesNotComeMakesRoomForAnother) {
  const Change change{.add = uuidOf(4), .remove = uuidOf(3)};
  View late = view({answering(1), answering(2), silent(3), learner(4, false)}, {5}, change);
  late.change_age = 61s;
  EXPECT_EQ(next(late), "remove a4");
  View removed = view({answering(1), answering(2), silent(3)}, {4, 5}, change);
  removed.change_age = 61s;
  EXPECT_EQ(next(removed), "publish 3");
  View again = view({answering(1), answering(2), silent(3)}, {4, 5});
  again.avoided = {uuidOf(4)};
  EXPECT_EQ(next(again), "begin +a5 -a3");
  EXPECT_EQ(next(view({answering(1), answering(2), silent(3)}, {5}, change)), "publish 3") << "it has gone meanwhile";
}

TEST(Membership, ALearnerWhoseMachineDiesMakesRoomAtOnce) {
  const Change change{.add = uuidOf(4), .remove = uuidOf(3)};
  View dead = view({answering(1), answering(2), silent(3), learner(4, false)}, {5}, change);
  std::erase_if(dead.machines, [](const Machine& machine) { return machine.uuid == uuidOf(4); });
  EXPECT_EQ(next(dead), "remove a4");
}

TEST(Membership, OfSeveralMachinesAtOneAddressTheLastOneCounts) {
  const auto key = [](const Machine& machine, int64_t revision) {
    store::KeyValue kv;
    kv.key = std::string(kMachinesPrefix) + machine.uuid;
    kv.value = encode(machine);
    kv.mod_revision = revision;
    return kv;
  };
  Machine anew = machine(6, true);
  anew.address = addressOf(3);
  Machine last = machine(2, true);  // its clock is behind
  last.address = addressOf(3);
  store::KeyValue other;
  other.key = kVotersKey;
  EXPECT_EQ(machinesOf({other, key(machine(1, false), 10), key(last, 13), key(machine(3, true), 11), key(anew, 12)}),
            (std::vector{machine(1, false), last}));
}

TEST(Membership, WithoutAStandbyADeadVoterIsWaitedFor) {
  const Step step = nextStep(view({answering(1), answering(2), silent(3)}, {}));
  EXPECT_EQ(describe(step), "wait");
  EXPECT_NE(step.why.find("none stands by"), std::string::npos) << step.why;
}

TEST(Membership, AVoterThatHasLostItsDataGoesFirst) {
  View own = view({answering(1), answering(2), silent(3)}, {});
  own.machines[2].stands_by = true;
  EXPECT_EQ(next(own), "begin + -a3");
  View another = view({answering(1), answering(2), silent(3)}, {});
  another.machines[2] = {.uuid = "a4", .address = addressOf(3), .start = 4, .durable = true, .stands_by = true};
  EXPECT_EQ(next(another), "begin + -a3");
}

TEST(Membership, ItGrowsOnlyToAnOddNumber) {
  EXPECT_EQ(next(view({answering(1)}, {2, 3})), "begin +a2 -");
  EXPECT_EQ(next(view({answering(1), answering(2)}, {3})), "begin +a3 -") << "what was begun";
  View busy = view({answering(1)}, {2});
  busy.machines.push_back(machine(9, false));  // it has not noticed yet that it does not vote
  EXPECT_EQ(next(busy), "wait");
  EXPECT_EQ(next(view({answering(1), answering(2), answering(3)}, {4, 5, 6, 7, 8, 9, 10})), "begin +a4 -");
}

TEST(Membership, ItDoesNotGrowForTheKeysOfMachinesThatWereReplaced) {
  View nine =
      view({answering(1), answering(2), answering(3)}, {4, 5, 6, 7, 8, 9, 10});  // 4 is gone, and 10 in its place
  EXPECT_TRUE(beginsWithAnother(nine, nextStep(nine)));
  nine.gone = {addressOf(4)};
  EXPECT_EQ(next(nine), "wait");
  nine.machines.push_back(machine(11, true));
  EXPECT_EQ(next(nine), "begin +a5 -");
}

TEST(Membership, AMachineThatIsGoneTakesNoVotersPlace) {
  View dead = view({answering(1), answering(2), silent(3)}, {4, 5});
  EXPECT_TRUE(beginsWithAnother(dead, nextStep(dead)));
  dead.gone = {addressOf(3), addressOf(4)};
  EXPECT_EQ(next(dead), "begin +a5 -a3");
  dead.gone.insert(addressOf(5));
  EXPECT_EQ(next(dead), "wait");
}

TEST(Membership, OnlyWhatBringsAnotherVoterBeginsWithAnother) {
  const auto begins = [](const View& view) { return beginsWithAnother(view, nextStep(view)); };
  EXPECT_FALSE(begins(view({answering(1)}, {})));
  EXPECT_FALSE(begins(view({answering(1), answering(2), answering(3), silent(4)}, {5, 6}))) << "one goes";
  const Change change{.add = uuidOf(4), .remove = uuidOf(3)};
  EXPECT_FALSE(begins(view({answering(1), answering(2), silent(3)}, {4}, change))) << "it has begun";
}

TEST(Membership, ItWantsNoMoreVotersThanCanVote) {
  const auto wanted = [](std::vector<View::Member> members, std::vector<uint8_t> standbys, uint8_t machines) {
    View made = view(std::move(members), standbys);
    for (uint8_t n = 100; made.machines.size() < machines; ++n)
      made.machines.push_back(machine(n, false));  // without etcd
    return votersWanted(made);
  };
  EXPECT_EQ(wanted({answering(1)}, {}, 9), 1u);
  EXPECT_EQ(wanted({answering(1)}, {2}, 9), 1u);
  EXPECT_EQ(wanted({answering(1)}, {2, 3}, 9), 3u);
  EXPECT_EQ(wanted({answering(1)}, {2, 3}, 10), 3u);
  EXPECT_EQ(wanted({answering(1)}, {2, 3, 4, 5}, 10), 5u);
}

TEST(Membership, ItShrinksWhenMachinesAreGoneForLong) {
  View two = view({answering(1), answering(2), silent(3)}, {});
  two.machines.pop_back();
  two.too_many_for = 9min;
  EXPECT_EQ(next(two), "wait");
  two.too_many_for = 11min;
  EXPECT_EQ(next(two), "begin + -a3");
  EXPECT_EQ(next(view({answering(1), answering(2), silent(3)}, {}, Change{.add = "", .remove = uuidOf(3)})),
            "remove a3");
  View even = view({answering(1), answering(2)}, {});
  even.too_many_for = 11min;
  EXPECT_EQ(next(even), "begin + -a2") << "not the leader";
  View risky = view({answering(1), answering(2), silent(3, 5s)}, {});
  risky.machines.erase(risky.machines.begin());
  risky.machines[0].start = 99;  // that of 2 is the youngest
  risky.too_many_for = 11min;
  EXPECT_EQ(next(risky), "wait") << "1 of 2 is no quorum";
  EXPECT_EQ(next(view({answering(1), answering(2)}, {}, Change{.add = "", .remove = uuidOf(2)})), "remove a2");
}

TEST(Membership, MachinesWithADiskComeFirst) {
  View mixed = view({answering(1), answering(2), silent(3)}, {5});
  mixed.machines.push_back(machine(4, true, false));
  EXPECT_EQ(next(mixed), "begin +a5 -a3");
  View none = view({answering(1), answering(2), silent(3)}, {});
  for (Machine& one : none.machines) one.durable = false;
  none.machines.push_back(machine(4, true, false));
  EXPECT_EQ(next(none), "begin +a4 -a3");
}

TEST(Membership, ALearnerOfNoChangeIsRemoved) {
  EXPECT_EQ(next(view({answering(1), learner(2, true)}, {})), "remove a2");
}

TEST(Membership, KeysAreWrittenAndRead) {
  const Published published{
      .cluster = "c",
      .voters = {{"u", {IpAddress::parse("2001:db8::1").value(), 2390}, 0xfedcba9876543210, true}},
      .change = Change{"x", ""}};
  EXPECT_EQ(decodePublished(encode(published)), published);
  EXPECT_EQ(decodePublished(encode(Published{})), Published{});
  const Machine one = machine(7, true);
  EXPECT_EQ(decodeMachine(one.uuid, encode(one)), one);
  for (const char* text : {"", "[]", "{}", R"({"voters":1})", R"({"voters":[{}]})",
                           R"({"voters":[{"uuid":"a","address":"x","member":"1"}]})",
                           R"({"voters":[{"uuid":"a","address":"192.0.2.1:1","member":""}]})",
                           R"({"voters":[{"uuid":"","address":"192.0.2.1:1","member":"1"}]})"})
    EXPECT_EQ(decodePublished(text), std::nullopt) << text;
  for (const char* text : {"", "{}", R"({"address":"192.0.2.1"})", R"({"address":7})"})
    EXPECT_EQ(decodeMachine("u", text), std::nullopt) << text;
  EXPECT_EQ(decodeMachine("u", R"({"address":"192.0.2.1:1","start":"x"})")->start, 0);
}

}  // namespace
}  // namespace idetcd::peers
