// The directive `health`: an endpoint that says that the process lives, and an end that waits for clients to go elsewhere.
#include <set>

#include "config/option_table.h"
#include "directive/health/self_check.h"
#include "resolve/directive.h"

namespace idetcd::directive {

namespace {

constexpr std::chrono::seconds kInterval{1};
constexpr std::chrono::seconds kPatience{3};
constexpr size_t kMaxAnswer = 4096;

SocketAddress asClient(SocketAddress endpoint) {
  if (!endpoint.ip.isUnspecified()) return endpoint;
  endpoint.ip = endpoint.ip.isV4() ? IpAddress::v4({127, 0, 0, 1})
                                   : IpAddress::v6({0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1});
  return endpoint;
}

// Of the configuration that is in use: for how long each of its `health` wishes the process to go on. First loop only.
class LameDuck final : public resolve::ProcessState {
 public:
  explicit LameDuck(resolve::Process& process) : log_(process.log.named("plugin/health")) {}

  void add(std::chrono::milliseconds wish) { wishes_.insert(wish); }
  void remove(std::chrono::milliseconds wish) { wishes_.erase(wishes_.find(wish)); }

  std::chrono::milliseconds prepareEnd() override {
    const std::chrono::milliseconds longest = wishes_.empty() ? std::chrono::milliseconds(0) : *wishes_.rbegin();
    if (longest.count() > 0) log_.info("Going into lameduck mode for {} ms", longest.count());
    return longest;
  }

 private:
  const Logger log_;
  std::multiset<std::chrono::milliseconds> wishes_;
};

constexpr std::string_view kAddress = ":8080";

const config::Options<HealthSettings>& options() {
  using namespace config;
  static const Options<HealthSettings> kOptions{
      Field<HealthSettings>([](DirectiveCursor& cursor, HealthSettings& settings) {
        return http::readListenAddress(cursor, kAddress, settings.address);
      })
          .orElse(std::string(kAddress.substr(1)))
          .named("PORT"),
      {{"lameduck", "lameduck DURATION, like 5s",
        duration(&HealthSettings::lame_duck, {.wrong = "'{word}' is negative"})}}};
  return kOptions;
}

class HealthDirective final : public resolve::Configured<HealthSettings> {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block&) override {
    settings_ = {};
    return options().read(cursor, settings_);
  }
  std::vector<SocketAddress> endpoints() const override {
    return http::resolve(settings_.address).value_or(std::vector<SocketAddress>());
  }
  // A process that answers at all is healthy: what it cannot do at the moment is what `ready` is for.
  Result<void> prepare(resolve::Process& process, const resolve::Block&) override {
    process_ = &process;
    const auto listening = process.state<http::Endpoints>().add(
        settings_.address, "/health", [](const http::Request&) { return http::Response{.body = "OK"}; });
    if (!listening) return fail("plugin/health: " + listening.error().message);
    listening_ = listening->front();
    return {};
  }
  void start() override {
    process_->state<LameDuck>().add(settings_.lame_duck);
    self_check_ = std::make_unique<SelfCheck>(process_->loop, listening_, process_->metrics.scope(),
                                              process_->log.named("plugin/health"));
  }
  void stop() override {
    self_check_.reset();
    process_->state<LameDuck>().remove(settings_.lame_duck);
  }

 private:
  resolve::Process* process_ = nullptr;
  SocketAddress listening_;
  std::unique_ptr<SelfCheck> self_check_;
};

}  // namespace

SelfCheck::SelfCheck(net::EventLoop& loop, SocketAddress endpoint, const metrics::Scope& scope, Logger log)
    : endpoint_(asClient(endpoint)), log_(std::move(log)), counters_(scope), connector_(loop), tick_(loop, [this] {
        onTick();
      }) {
  tick_.start(kInterval, kInterval);
}

void SelfCheck::onTick() {
  if (!asking_) return ask();
  if (Clock::now() - asked_ >= kPatience) fail("no answer");
}

void SelfCheck::ask() {
  asking_ = true;
  asked_ = Clock::now();
  answer_.clear();
  if (!connection_) {
    auto connection = connector_.connect(endpoint_);
    if (!connection) return fail(connection.error().message);
    connection_ = std::move(*connection);
    connection_->start(*this);
  }
  const std::string request = fmt::format("GET /health HTTP/1.1\r\nHost: {}\r\n\r\n", endpoint_.toString());
  connection_->write({request.begin(), request.end()});
}

// The answer is complete with the OK behind its head. Any other one is a failure.
void SelfCheck::onData(std::span<const uint8_t> bytes) {
  if (!asking_) return;
  answer_.append(bytes.begin(), bytes.end());
  constexpr std::string_view kHealthy = "HTTP/1.1 200 ";
  const bool healthy = answer_.starts_with(kHealthy.substr(0, answer_.size()));
  if (!healthy || answer_.size() > kMaxAnswer) return fail(answer_.substr(0, answer_.find('\r')));
  if (!answer_.ends_with("\r\n\r\nOK")) return;
  asking_ = false;
  const auto took = observe();
  if (took > kInterval) {
    log_.warning("Local health request to {} took {} ms", endpoint_.toString(),
                 std::chrono::floor<std::chrono::milliseconds>(took).count());
  }
}

// Between two requests the server may close the connection: the next one makes another.
void SelfCheck::onEnd() {
  if (asking_) return fail("the connection has ended");
  connection_.reset();
}

void SelfCheck::onError() {
  if (asking_) return fail(connection_->failure());
  connection_.reset();
}

void SelfCheck::fail(const std::string& why) {
  asking_ = false;
  connection_.reset();
  observe();
  counters_.failures.add();
  log_.warning("Local health request to {} failed: {}", endpoint_.toString(), why);
}

SelfCheck::Clock::duration SelfCheck::observe() {
  const auto took = Clock::now() - asked_;
  counters_.duration.observe(static_cast<uint64_t>(std::chrono::nanoseconds(took).count()));
  return took;
}

extern const resolve::DirectiveType kHealthDirective{.name = "health",
                                                     .syntax = "health [[HOST]:PORT] [{ ... }]",
                                                     .make = resolve::makeDirective<HealthDirective>,
                                                     .defaults = [] { return options().defaults(); }};

}  // namespace idetcd::directive
