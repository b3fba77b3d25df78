#include "directive/forward/control_paths.h"

#include "control/control.h"
#include "dns/name.h"
#include "resolver/kept_caches.h"

namespace idetcd::directive {

namespace {

using nlohmann::json;

// The zone to drop: all, if none is given. A misspelt parameter, or one more, is not nothing.
Result<dns::Name> zoneOf(const http::Request& request) {
  if (request.query.empty()) return dns::Name();
  const std::string text = control::parameter(request, "name");
  if (text.empty() || request.query.find('&') != request.query.npos)
    return fail("name=N is the one parameter, and N a domain name");
  auto name = dns::Name::parse(text);
  if (!name) return fail(fmt::format("{} is no domain name: {}", text, name.error().message));
  return name;
}

void flush(resolver::LiveCaches& caches, const Logger& log, const http::Request& request, http::Reply reply) {
  if (!request.is_post) return reply(control::refuse(405, "this changes something: POST it"));
  const auto zone = zoneOf(request);
  if (!zone) return reply(control::refuse(400, zone.error().message));
  caches.flush(*zone, [log, name = zone->toString(),
                       reply = std::move(reply)](const resolver::LiveCaches::FlushResult& outcome) {
    log.info("{} answers for {} flushed", outcome.flushed, name);
    reply(outcome.error.empty() ? control::answer({{"flushed", outcome.flushed}})
                                : control::refuse(500, outcome.error));
  });
}

uint64_t whole(double value) { return static_cast<uint64_t>(value); }

// The state of one server, put together from all loops.
struct Known {
  std::string server;
  bool is_up = false;
  std::chrono::nanoseconds round_trips{0};
  int64_t count = 0;  // of them

  void add(const resolver::ServerReport& report) {
    if (!report.isUp()) return;
    is_up = true;
    const auto time = report.roundTrip();
    if (!time) return;
    round_trips += *time;
    ++count;
  }
  json roundTrip() const {
    if (count == 0) return nullptr;
    return std::chrono::duration<double>(round_trips / count).count();
  }
};

void add(std::vector<Known>& all, const resolver::ServerReport& report) {
  auto known = std::ranges::find(all, report.server, &Known::server);
  if (known == all.end()) known = all.insert(all.end(), Known{.server = report.server});
  known->add(report);
}

}  // namespace

void addForwardPaths(resolve::Process& process) {
  auto& control = process.state<control::Control>();
  for (const char* section : {"caches", "degraded", "upstreams"}) control.addStatus(section, [] { return json::array(); });
  control.addLate(
      "/v1/flush",
      [caches = process.state<resolver::KeptCaches>().live(), log = process.log.named("plugin/cache")](
          const http::Request& request, http::Reply reply) { flush(*caches, log, request, std::move(reply)); });
}

std::shared_ptr<BlockReport> BlockReport::make(resolve::Process& process) {
  auto report = std::make_shared<BlockReport>();
  auto& control = process.state<control::Control>();
  control.addStatus("caches", [report] { return report->caches(); });
  control.addStatus("upstreams", [report] { return report->upstreams(); });
  control.addStatus("degraded", [report] { return report->degraded(); });
  return report;
}

void BlockReport::add(const std::string& block, Loop loop) {
  const std::lock_guard lock(mutex_);
  block_ = block;
  assert(loop.files.size() == loop.upstreams.size());
  loops_.push_back(std::move(loop));
}

json BlockReport::caches() const {
  const std::lock_guard lock(mutex_);
  uint64_t entries = 0;
  uint64_t bytes = 0;
  uint64_t hits = 0;
  uint64_t misses = 0;
  bool is_there = false;
  for (const Loop& loop : loops_) {
    const auto cache = loop.cache.lock();
    if (!cache) continue;
    is_there = true;
    entries += whole(cache->success.entries.value()) + whole(cache->denial.entries.value());
    bytes += whole(cache->bytes.value());
    hits += cache->success.hits.value() + cache->denial.hits.value();
    misses += cache->misses.value();
  }
  if (!is_there) return json::array();
  return json::array({{{"block", block_}, {"entries", entries}, {"bytes", bytes}, {"hits", hits}, {"misses", misses}}});
}

json BlockReport::degraded() const {
  const std::lock_guard lock(mutex_);
  auto all = json::array();
  for (size_t forward = 0; !loops_.empty() && forward < loops_.front().upstreams.size(); ++forward) {
    std::vector<Known> servers;
    bool is_there = false;
    for (const Loop& loop : loops_) {
      const auto reports = loop.upstreams.at(forward).lock();
      if (!reports) continue;
      is_there = true;
      for (const auto& report : reports->all()) directive::add(servers, *report);
    }
    if (!is_there || std::ranges::any_of(servers, &Known::is_up)) continue;
    std::string reason = "no upstream answers:";
    if (servers.empty()) reason = fmt::format("there is no upstream: {} names none", loops_.front().files.at(forward));
    for (const Known& known : servers) reason += " " + known.server;
    all.push_back(fmt::format("{}: {}", block_, reason));
  }
  return all;
}

json BlockReport::upstreams() const {
  const std::lock_guard lock(mutex_);
  std::vector<Known> servers;  // in the order of the first loop
  for (const Loop& loop : loops_) {
    for (const auto& one : loop.upstreams) {
      const auto reports = one.lock();
      if (!reports) continue;
      for (const auto& report : reports->all()) directive::add(servers, *report);
    }
  }
  auto all = json::array();
  for (const Known& known : servers) {
    all.push_back(
        {{"block", block_}, {"server", known.server}, {"up", known.is_up}, {"round_trip_seconds", known.roundTrip()}});
  }
  return all;
}

}  // namespace idetcd::directive
