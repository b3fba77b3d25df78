#include "directive/idetcd/peers_report.h"

namespace idetcd::directive {

namespace {

using json = nlohmann::json;
using Voting = peers::Voting;

constexpr std::chrono::seconds kPatience{2};  // with the voters

const char* textOf(Voting::Role role) {
  switch (role) {
    case Voting::Role::kUnknown:
      return "not known";
    case Voting::Role::kStandsBy:
      return "stands by";
    case Voting::Role::kStarts:
      return "starts";
    case Voting::Role::kLearns:
      return "learns";
    case Voting::Role::kVotes:
      return "votes";
  }
  return "";
}

}  // namespace

std::string waitsFor(const peers::PeerGroup& group) {
  const auto report = group.report();
  if (!report.trouble.empty()) return fmt::format("no cluster yet: {}", report.trouble);
  if (!report.founder.cluster) return fmt::format("no cluster yet: {}", report.founder.progress.toString());
  return {};
}

json describePeers(const peers::PeerGroup& group) {
  const auto report = group.report();
  const auto voting = group.askVoters(kPatience);
  const auto& progress = report.founder.progress;
  json described{{"port", group.settings().port},
                 {"node", report.uuid},
                 {"cluster", nullptr},
                 {"number", nullptr},
                 {"founders", nullptr},
                 {"waits_for", waitsFor(group)},
                 {"seen", progress.seen},
                 {"quorum", progress.quorum},
                 {"expected", group.settings().expect},
                 {"listens", report.founder.listens},
                 {"searches", report.founder.searching},
                 {"role", nullptr},
                 {"connected", false},
                 {"doing", ""},
                 {"problem", report.trouble},
                 {"machines", nullptr},
                 {"voters", json::array()},
                 {"standbys", json::array()}};
  if (const auto& cluster = report.founder.cluster) {
    described["cluster"] = cluster->cluster;
    described["founders"] = cluster->members.size();
    if (const int64_t number = cluster->numberOf(report.uuid); number > 0) described["number"] = number;
  }
  if (!voting) return described;
  const bool one_answers = std::ranges::any_of(voting->voters, &Voting::VoterStatus::answers);
  described["connected"] = report.reaches_voters && (one_answers || voting->role == Voting::Role::kUnknown);
  described["role"] = textOf(voting->role);
  described["doing"] = voting->going_on;
  described["problem"] = voting->problem;
  described["machines"] = voting->machines.size();
  for (const Voting::VoterStatus& one : voting->voters) {
    described["voters"].push_back({{"node", one.voter.uuid},
                                   {"address", one.voter.address.toString()},
                                   {"member", fmt::format("{:x}", one.voter.member)},
                                   {"learner", one.voter.learner},
                                   {"healthy", one.answers},
                                   {"leader", one.leads},
                                   {"version", one.version},
                                   {"in_memory", one.in_memory},
                                   {"own", one.voter.uuid == report.uuid}});
  }
  for (const peers::Machine& one : voting->machines) {
    if (one.stands_by)
      described["standbys"].push_back(
          {{"node", one.uuid}, {"address", one.address.toString()}, {"durable", one.durable}});
  }
  return described;
}

}  // namespace idetcd::directive
