#include <future>
#include <set>

#include "directive/idetcd/checks.h"
#include "naming/watched_ranges.h"
#include "peers/etcd_version.h"

namespace idetcd::directive {
namespace {

using resolve::Finding;
using resolve::Findings;
using resolve::Severity;
using store::Task;

constexpr std::chrono::milliseconds kCallTime{1500};
constexpr std::chrono::milliseconds kAnswerTime{2500};  // of all
constexpr std::chrono::hours kSoon{7 * 24};

struct Question {
  std::string endpoint;
  std::unique_ptr<etcd::Client> client;
  EndpointAnswer answer;
  std::promise<void> answered;
};

// `question` and `range` outlive it.
Task<void> ask(Question& question, const store::KeyRange& range) {
  const etcd::Cluster cluster(*question.client);
  auto status = co_await cluster.status();
  question.answer.status = std::move(status);
  if (question.answer.status) {
    const store::RangeOptions options{.limit = 1, .keys_only = true};
    const auto read = co_await question.client->range(range, options);
    if (!read) question.answer.read = read.error();
  }
  question.answered.set_value();
}

std::vector<EndpointAnswer> askAll(const ClusterSettings& settings, etcd::CompletionThread& thread) {
  const store::KeyRange range = naming::watchedRanges({"pattern"}, settings.pattern).front();
  const auto end = std::chrono::steady_clock::now() + kAnswerTime;
  std::vector<Question> questions(settings.endpoints.size());
  for (size_t i = 0; i < questions.size(); ++i) {
    etcd::Client::Options options = settings.etcdOptions();
    options.endpoints = {settings.endpoints[i]};
    options.call_timeout = kCallTime;
    questions[i].answer.endpoint = settings.endpoints[i];
    questions[i].client = std::make_unique<etcd::Client>(thread, std::move(options), Logger());
    thread.spawn(ask(questions[i], range));
  }
  for (Question& question : questions) question.answered.get_future().wait_until(end);
  for (Question& question : questions) {
    for (const auto& unused : question.client->unusedEndpoints()) question.answer.unused = unused.reason;
  }
  thread.stop();
  std::vector<EndpointAnswer> answers;
  answers.reserve(questions.size());
  for (Question& question : questions) answers.push_back(std::move(question.answer));
  return answers;
}

std::string wayOut(const store::StoreError& error) {
  if (error.code == ErrorCode::kUnauthenticated || error.code == ErrorCode::kPermissionDenied)
    return "`credentials USER PASSWORD`, of a user whose role may read and write the names";
  if (error.code == ErrorCode::kNoSpace)
    return "etcdctl compact, etcdctl defrag, etcdctl alarm disarm";
  return "look at etcd there, at firewalls, and at `endpoint` and `tls`";
}

void judgeMember(const EndpointAnswer& answer, Findings& findings) {
  const etcd::MemberStatus& status = *answer.status;
  findings.push_back({Severity::kOk,
                      fmt::format("{} is etcd {} of cluster {:x}", answer.endpoint, status.version, status.cluster_id),
                      {}});
  if (!answer.unused.empty()) {
    findings.push_back({Severity::kWarning, fmt::format("{} is not used: {}", answer.endpoint, answer.unused),
                        "take it out of `endpoint`"});
  }
  if (status.leader == 0) {
    findings.push_back({Severity::kError,
                        fmt::format("{} knows no leader: most members of its cluster are away", answer.endpoint),
                        "start them; `etcdctl endpoint status --cluster -w table` shows them"});
  } else if (answer.read) {
    findings.push_back({Severity::kError,
                        fmt::format("names cannot be read at {}: {}", answer.endpoint, answer.read->message),
                        wayOut(*answer.read)});
  }
  if (status.no_space) {
    findings.push_back({Severity::kError, fmt::format("the cluster of {} has run out of space", answer.endpoint),
                        "etcdctl compact, etcdctl defrag, etcdctl alarm disarm"});
  }
}

}  // namespace

Findings judgeEndpoints(std::span<const EndpointAnswer> answers) {
  Findings findings;
  const bool none_answers = std::ranges::none_of(answers, [](const auto& one) { return one.status.has_value(); });
  std::set<uint64_t> clusters;
  std::set<std::string> versions;
  for (const EndpointAnswer& answer : answers) {
    if (answer.status) {
      judgeMember(answer, findings);
      clusters.insert(answer.status->cluster_id);
      versions.insert(answer.status->version);
    } else {
      findings.push_back({none_answers ? Severity::kError : Severity::kWarning,
                          fmt::format("{}: {}", answer.endpoint, answer.status.error().message),
                          wayOut(answer.status.error())});
    }
  }
  if (clusters.size() > 1) {
    findings.push_back({Severity::kError,
                        fmt::format("the endpoints are of {} clusters, of which one is used", clusters.size()),
                        "name the members of one cluster in `endpoint`"});
  }
  for (const std::string& version : versions) {
    if (const std::string defects = peers::defectsOf(version); !defects.empty()) {
      findings.push_back({Severity::kWarning, fmt::format("etcd {} has known defects: {}", version, defects),
                          "install 3.4.42, 3.5.28, 3.6.9 or newer, one member after the other"});
    }
  }
  return findings;
}

Finding judgeCertificate(const std::string& file, std::chrono::system_clock::time_point end,
                         std::chrono::system_clock::time_point now) {
  const auto hours = std::chrono::duration_cast<std::chrono::hours>(end - now);
  if (end < now) return {Severity::kError, fmt::format("{} has expired", file), "renew it: no restart is needed"};
  if (end - now < kSoon)
    return {Severity::kWarning, fmt::format("{} expires in {} hours", file, hours.count()), "renew it: no restart is needed"};
  return {Severity::kOk, fmt::format("{} holds for {} days", file, hours.count() / 24), {}};
}

Findings checkEtcd(const ClusterSettings& settings) {
  Findings findings;
  if (settings.tls) {
    if (const auto end = etcd::Client::certificateEnd(*settings.tls))
      findings.push_back(
          judgeCertificate(settings.tls->certificate_file, *end, std::chrono::system_clock::now()));
  }
  auto thread = etcd::CompletionThread::make();
  if (!thread) return {{Severity::kError, thread.error().message, {}}};
  const std::vector<EndpointAnswer> answers = askAll(settings, **thread);
  Findings of_members = judgeEndpoints(answers);
  findings.insert(findings.end(), of_members.begin(), of_members.end());
  return findings;
}

}  // namespace idetcd::directive
