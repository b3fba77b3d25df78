#include "directive/idetcd/relays.h"

#include "etcd/client.h"
#include "etcd/server.h"

namespace idetcd::directive {
namespace {

class ServedNames final : public naming::RelayService {
 public:
  explicit ServedNames(std::unique_ptr<etcd::Server> server)
      : server_(std::move(server)), card_{server_->endpoints(), server_->certificate(), server_->token()} {}

  const naming::RelayCard& card() const override { return card_; }
  size_t readers() const override { return server_->watches(); }

 private:
  const std::unique_ptr<etcd::Server> server_;
  const naming::RelayCard card_;
};

// Its messages speak of etcd: who asks for it says what becomes of the relay.
std::shared_ptr<store::Source> connectTo(etcd::CompletionThread& thread, const naming::RelayCard& card,
                                         std::chrono::milliseconds timeout, std::shared_ptr<Executor> executor) {
  etcd::Client::Options options;
  options.endpoints = card.endpoints;
  options.pinned = {.certificate = card.certificate, .token = card.token};
  options.self_founded = true;  // its addresses are of one server
  options.call_timeout = timeout;
  options.executor = std::move(executor);
  const auto isOverTls = [](const std::string& endpoint) { return endpoint.starts_with("https://"); };
  if (!etcd::Client::validateOptions(options) || !std::ranges::all_of(card.endpoints, isOverTls)) return nullptr;
  return std::make_shared<etcd::Client>(thread, std::move(options), Logger());
}

}  // namespace

naming::RelayOptions relayOptions(etcd::CompletionThread& thread, const ClusterSettings& settings,
                                  std::vector<IpAddress> addresses, std::shared_ptr<Executor> executor,
                                  const metrics::Scope& metrics, const Logger& log) {
  using Served = Result<std::unique_ptr<naming::RelayService>>;
  naming::RelayOptions made;
  made.fan_out = settings.relay;
  // Names are stale a lease time after the last watch has ended; two relays of two addresses may be tried till then. A
  // relay itself waits for 2 s for what it is asked for.
  const auto timeout = std::max<std::chrono::milliseconds>(settings.lease / 8, std::chrono::milliseconds(2500));
  made.connect = [&thread, timeout, executor = std::move(executor)](const naming::RelayCard& card) {
    return connectTo(thread, card, timeout, executor);
  };
  etcd::Server::Options options;
  options.addresses = std::move(addresses);
  options.max_calls = static_cast<size_t>(3 * settings.relay + 10);  // chance does not share out evenly
  options.max_connections = options.max_calls + 64;
  options.metrics = metrics;
  made.serve = [&thread, options, log](std::shared_ptr<store::Source> names) -> Served {
    auto server = etcd::Server::make(thread, std::move(names), options, log);
    if (!server) return tl::unexpected(server.error());
    return std::make_unique<ServedNames>(std::move(*server));
  };
  return made;
}

}  // namespace idetcd::directive
