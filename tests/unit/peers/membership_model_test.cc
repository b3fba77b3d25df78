// Random histories of machines that die, come back and catch up late, and of leaders that change in the middle of a
// change, over a model of etcd's list of members. Whoever acts is nextStep().
#include <random>

#include <gtest/gtest.h>

#include "peers/membership.h"

namespace idetcd::peers {
namespace {

using namespace std::chrono_literals;

class Model {
 public:
  explicit Model(uint64_t seed) : random_(seed), machines_(1 + random_() % 12) {
    const size_t founders = votersFor(machines_.size());
    for (size_t i = 0; i < founders; ++i) {
      machines_[i].data = ++last_id_;
      members_[last_id_] = {.machine = i, .learner = false, .caught_up = true};
    }
  }

  // A second passes. False: what must hold does not.
  bool tick(bool with_faults) {
    now_ += 1s;
    for (size_t i = 0; i < machines_.size(); ++i) {
      Node& node = machines_[i];
      if (with_faults && random_() % 40 == 0 && node.lives && mayDie(i)) node.lives = false;
      if (!node.lives && random_() % (with_faults ? 60 : 10) == 0) node.lives = true;
      follow(i);
    }
    if (leader_ == 0 || !leads(leader_) || (with_faults && random_() % 20 == 0)) elect();
    if (leader_ == 0) return fail("the majority is lost");
    const int steps = static_cast<int>(random_() % 3);
    for (int i = 0; i <= steps; ++i) {
      View view = look();
      const Step step = nextStep(view);
      if (!apply(step, view)) return false;
      if (with_faults && random_() % 15 == 0) elect();  // before it knows that it is done
      if (leader_ == 0) return fail("no leader is left after: " + step.why);
    }
    return true;
  }

  // Nothing is under way, and enough machines vote, all of which live.
  bool isSettled() const {
    size_t voters = 0;
    for (const auto& [id, member] : members_) {
      if (member.learner || !answers(id)) return false;
      ++voters;
    }
    return !published_.change && voters == votersFor(machines_.size());
  }
  std::string problem() const { return problem_; }

 private:
  struct Node {
    bool lives = true;
    uint64_t data = 0;  // of which member; 0: it has none
    bool slow = false;  // its etcd does not come, or does not catch up
  };
  struct Member {
    size_t machine = 0;
    bool learner = false;
    bool caught_up = false;
  };

  static std::string uuidOf(size_t machine) { return fmt::format("m{:02}", machine); }
  static SocketAddress addressOf(size_t machine) {
    return {IpAddress::v4({192, 0, 2, static_cast<uint8_t>(machine + 1)}), 2390};
  }
  bool fail(std::string what) {
    problem_ = std::move(what);
    return false;
  }

  bool answers(uint64_t id) const {
    const Member& member = members_.at(id);
    return machines_[member.machine].lives && machines_[member.machine].data == id && member.caught_up;
  }
  size_t voters() const {
    return static_cast<size_t>(std::ranges::count_if(members_, [](const auto& one) { return !one.second.learner; }));
  }
  size_t living() const {
    return static_cast<size_t>(
        std::ranges::count_if(members_, [this](const auto& one) { return !one.second.learner && answers(one.first); }));
  }
  bool hasQuorum() const { return living() >= voters() / 2 + 1; }
  // The majority must not be lost by deaths alone: what is tried is that it is not lost by changes.
  bool mayDie(size_t machine) {
    machines_[machine].lives = false;
    const bool may = hasQuorum();
    machines_[machine].lives = true;
    return may;
  }
  bool leads(uint64_t id) const { return members_.contains(id) && !members_.at(id).learner && answers(id); }
  void elect() {
    std::vector<uint64_t> able;
    for (const auto& [id, member] : members_) {
      if (leads(id)) able.push_back(id);
    }
    leader_ = !hasQuorum() ? 0 : able[random_() % able.size()];
    answered_.clear();
    avoided_.clear();
    change_since_.reset();
    too_many_since_.reset();
  }

  // What a machine does by the voters key.
  void follow(size_t i) {
    Node& node = machines_[i];
    if (!node.lives || published_.voters.empty()) return;
    const auto self = std::ranges::find(published_.voters, uuidOf(i), &Voter::uuid);
    if (self == published_.voters.end() || (node.data != 0 && node.data != self->member)) node.data = 0;
    if (self == published_.voters.end()) return;
    if (node.data == 0 && self->learner) {
      node.data = self->member;
      node.slow = random_() % 4 == 0;
    }
    const auto member = members_.find(node.data);
    if (member != members_.end() && !node.slow && random_() % 3 == 0) member->second.caught_up = true;
  }

  View look() {
    View view;
    view.published = published_;
    view.self = leader_;
    for (const auto& [id, member] : members_) {
      View::Member seen{.voter = {uuidOf(member.machine), addressOf(member.machine), id, member.learner}};
      seen.answers = answers(id);
      auto& last = answered_.try_emplace(id, now_).first->second;
      if (seen.answers) last = now_;
      seen.silent = now_ - last;
      view.members.push_back(seen);
    }
    for (size_t i = 0; i < machines_.size(); ++i) {
      const Node& node = machines_[i];
      const bool listed = std::ranges::find(published_.voters, uuidOf(i), &Voter::uuid) != published_.voters.end();
      if (node.lives)
        view.machines.push_back({uuidOf(i), addressOf(i), static_cast<int64_t>(i), true, !listed && node.data == 0});
    }
    if (!published_.change) {
      change_since_.reset();
    } else {
      if (!change_since_) change_since_ = now_;
      view.change_age = now_ - *change_since_;
    }
    if (voters() <= votersFor(view.machines.size()))
      too_many_since_.reset();
    else if (!too_many_since_)
      too_many_since_ = now_;
    if (too_many_since_) view.too_many_for = now_ - *too_many_since_;
    view.avoided = avoided_;
    return view;
  }

  bool apply(const Step& step, const View& view) {
    if (const auto* publish = std::get_if<step::Publish>(&step.what)) {
      published_ = publish->value;
    } else if (const auto* add = std::get_if<step::Add>(&step.what)) {
      const auto machine =
          static_cast<size_t>(std::ranges::find(view.machines, add->machine.uuid, &Machine::uuid)->start);
      for (const auto& [id, member] : members_) {
        if (member.learner) return fail("a second learner is added");
        if (member.machine == machine) return fail("a machine is added twice");
      }
      members_[++last_id_] = {.machine = machine, .learner = true, .caught_up = false};
    } else if (const auto* promote = std::get_if<step::Promote>(&step.what)) {
      Member& member = members_.at(promote->voter.member);
      if (!member.caught_up) return fail("a learner is promoted that has not caught up");
      member.learner = false;
    } else if (const auto* remove = std::get_if<step::Remove>(&step.what)) {
      if (remove->voter.learner) avoided_.insert(remove->voter.uuid);
      if (remove->voter.member == leader_) leader_ = 0;
      const bool was_voter = !members_.at(remove->voter.member).learner;
      const size_t lived = living();
      members_.erase(remove->voter.member);
      if (was_voter && voters() % 2 == 0 && lived == living() && voters() + 1 == votersFor(view.machines.size()))
        return fail("a voter is removed before its successor votes");
      if (leader_ == 0) elect();
    }
    if (!hasQuorum()) return fail("a step has cost the majority: " + step.why);
    return true;
  }

  std::mt19937_64 random_;
  std::vector<Node> machines_;
  std::map<uint64_t, Member> members_;
  uint64_t last_id_ = 0;
  Published published_;
  std::string problem_;
  std::chrono::nanoseconds now_{0};
  uint64_t leader_ = 0;
  // What a leader remembers.
  std::map<uint64_t, std::chrono::nanoseconds> answered_;
  std::set<std::string> avoided_;
  std::optional<std::chrono::nanoseconds> change_since_;
  std::optional<std::chrono::nanoseconds> too_many_since_;
};

TEST(MembershipModel, NoHistoryCostsTheMajorityAndEachComesToRest) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    Model model(seed);
    for (int i = 0; i < 400; ++i)
      ASSERT_TRUE(model.tick(true)) << "seed " << seed << ", second " << i << ": " << model.problem();
    int rest = 0;
    while (!model.isSettled() && rest < 3000) {
      ASSERT_TRUE(model.tick(false)) << "seed " << seed << ": " << model.problem();
      ++rest;
    }
    ASSERT_TRUE(model.isSettled()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace idetcd::peers
