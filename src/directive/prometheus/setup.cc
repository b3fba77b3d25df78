// The directive `prometheus`: the numbers of this process over HTTP, and those of the block's queries among them.
#include "config/option_table.h"
#include "directive/prometheus/query_meters.h"
#include "http/endpoints.h"
#include "resolve/directive.h"

namespace idetcd::directive {

namespace {

constexpr std::string_view kUnrouted = "dropped";  // instead of a zone; it has no dot at its end, as zones have

class PrometheusDirective final : public resolve::Configured<PrometheusSettings> {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block&) override {
    static const config::Options<PrometheusSettings> kOptions{
        [](config::DirectiveCursor& line, PrometheusSettings& settings) {
          return http::readListenAddress(line, "localhost:9153", settings.address);
        },
        {{"runtime_metrics", "runtime_metrics", config::ignored<PrometheusSettings>()}}};  // of Go, which is not here
    return kOptions.read(cursor, settings_);
  }
  std::vector<SocketAddress> endpoints() const override {
    return http::resolve(settings_.address).value_or(std::vector<SocketAddress>());
  }
  Result<void> prepare(resolve::Process& process, const resolve::Block&) override {
    meters_ = &process.state<QueryMeters>();
    const auto answer = [meters = meters_](const http::Request&) {
      return http::Response{.body = meters->snapshot().text(),
                            .content_type = "text/plain; version=0.0.4; charset=utf-8"};
    };
    if (auto added = process.state<http::Endpoints>().add(settings_.address, "/metrics", answer); !added) {
      return fail(fmt::format("plugin/prometheus: {}", added.error().message));
    }
    return {};
  }
  Result<void> addTo(resolve::Chain& chain, const resolve::LoopContext& context) override {
    chain.parts.meters = [meters = meters_, worker = context.worker](const SocketAddress& listening,
                                                                     config::Scheme scheme, const dns::Name* zone) {
      return meters->meterOf(resolve::serverLabel(listening, scheme),
                             zone != nullptr ? zone->toString() : std::string(kUnrouted), worker);
    };
    if (enabled_.empty()) noteServers(context);
    return {};
  }
  void start() override { meters_->enable(this, enabled_); }
  void stop() override { meters_->disable(this); }

 private:
  void noteServers(const resolve::LoopContext& context) {
    for (const SocketAddress& listening : context.listening) {
      for (const config::ServerKey& key : context.block.keys) {
        if (key.port != listening.port) continue;
        for (const auto& [type, directive] : context.block.directives) {
          enabled_.push_back(
              {resolve::serverLabel(listening, key.scheme), key.zone.toString(), std::string(type->name)});
        }
      }
    }
  }

  QueryMeters* meters_ = nullptr;                // of the process
  std::vector<QueryMeters::Enabled> enabled_{};  // the directives of the block
};

}  // namespace

extern const resolve::DirectiveType kPrometheusDirective{.name = "prometheus",
                                                         .syntax = "prometheus [ADDRESS] [{ runtime_metrics }]",
                                                         .make = resolve::makeDirective<PrometheusDirective>,
                                                         .once = true};

}  // namespace idetcd::directive
