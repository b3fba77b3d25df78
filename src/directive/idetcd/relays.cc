#include "directive/idetcd/relays.h"

#include "etcd/client.h"
#include "etcd/server.h"

namespace idetcd::directive {
namespace {

class ServedNames final : public naming::RelayService {
 public:
  ServedNames(std::unique_ptr<etcd::Server> server, std::shared_ptr<void> descriptors)
      : descriptors_(std::move(descriptors)),
        server_(std::move(server)),
        card_{server_->endpoints(), server_->certificate(), server_->token()} {}

  const naming::RelayCard& card() const override { return card_; }
  size_t readers() const override { return server_->watches(); }

 private:
  const std::shared_ptr<void> descriptors_;
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
                                  const resolve::Process& process, const metrics::Scope& metrics, const Logger& log) {
  using Served = Result<std::unique_ptr<naming::RelayService>>;
  naming::RelayOptions made;
  made.fan_out = settings.relay;
  // Names are stale a lease time after the last watch has ended; two relays of two addresses may be tried till then. A
  // relay itself waits for 2 s for what it is asked for.
  const auto timeout = std::max<std::chrono::milliseconds>(settings.lease / 8, std::chrono::milliseconds(2500));
  made.connect = [&thread, timeout, executor = process.executor](const naming::RelayCard& card) {
    return connectTo(thread, card, timeout, executor);
  };
  etcd::Server::Options options;
  options.max_calls = static_cast<size_t>(3 * settings.relay + 10);  // chance does not share out evenly
  options.metrics = metrics;
  made.serve = [&thread, options, budget = process.descriptors, log](
                   std::shared_ptr<store::Source> names, const std::vector<IpAddress>& addresses) mutable -> Served {
    options.addresses = addresses;
    options.max_connections = std::min(options.max_calls + 64, budget->total() / 2);
    auto descriptors = budget->reserve(options.max_connections);
    auto server = etcd::Server::make(thread, std::move(names), options, log);
    if (!server) return tl::unexpected(server.error());
    return std::make_unique<ServedNames>(std::move(*server), std::move(descriptors));
  };
  return made;
}

}  // namespace idetcd::directive
