#include "directive/idetcd/cluster_stores.h"

#include <future>

namespace idetcd::directive {

Result<void> ClusterStores::begin() {
  if (thread_) return {};
  auto thread = etcd::CompletionThread::make();
  if (!thread) return tl::unexpected(thread.error());
  thread_ = std::move(*thread);
  return {};
}

void ClusterStores::stop(std::chrono::nanoseconds grace) {
  if (thread_) thread_->stop(grace);
}

// The one place that knows which store holds the names.
std::unique_ptr<etcd::Client> ClusterStores::open(const ClusterSettings& settings, ClusterStore& store,
                                                  const metrics::Scope& metrics) {
  etcd::Client::Options options = settings.etcdOptions();
  if (store.peers) {
    options.endpoints = store.peers->endpoints();
    options.tls = store.peers->tls();
    options.credentials.reset();
    options.self_founded = true;
  }
  options.spread = true;
  options.metrics = metrics;
  options.executor = process_.executor;
  auto client = std::make_unique<etcd::Client>(*thread_, std::move(options), process_.log.named("plugin/idetcd"));
  store.client = client.get();
  return client;
}

namespace {

records::RecordStore::Options recordOptions(const ClusterSettings& settings, const node::NodeAddresses& node,
                                            HashSeed seed) {
  records::RecordStore::Options options{.zone = settings.pattern.zone(),
                                        .ttl_seconds = settings.ttl_seconds,
                                        .addresses = node.addresses.list(),
                                        .hash_seed = seed,
                                        .is_member = {}};
  // An address may have other names too, such as a service's: those of the nodes come before them.
  options.is_member = [pattern = settings.pattern](const dns::Name& name) {
    return pattern.recognise(name.toString()).has_value();
  };
  return options;
}

}  // namespace

std::unique_ptr<ClusterStore> ClusterStores::make(const ClusterSettings& settings,
                                                  const node::NodeAddresses& node) const {
  auto made = std::make_unique<ClusterStore>();
  made->records =
      std::make_shared<records::RecordStore>(process_.epochs, recordOptions(settings, node, process_.hash_seed));
  return made;
}

// Both tables are looked at by their writer only; blocks until that has been done.
std::unique_ptr<records::RecordUnion> ClusterStores::unite(const ClusterSettings& settings,
                                                           const node::NodeAddresses& node, const ClusterStore& first,
                                                           const ClusterStore& second,
                                                           records::RecordUnion::Second counts) {
  auto both = std::make_unique<records::RecordUnion>(process_.epochs, recordOptions(settings, node, process_.hash_seed),
                                                     *first.records, *second.records, counts);
  onWriter([whole = both.get()] { whole->begin(); });
  return both;
}

void ClusterStores::onWriter(std::function<void()> work) {
  auto done = std::make_shared<std::promise<void>>();
  const std::future<void> is_done = done->get_future();
  thread_->post([work = std::move(work), done = std::move(done)] {
    work();
    done->set_value();
  });
  is_done.wait();
}

metrics::Scope ClusterStores::scopeOf(const ClusterSettings& settings) const {
  return process_.metrics.scope().with("pattern", settings.pattern.text());
}

metrics::Scope ClusterStores::scopeOf(const ClusterSettings& settings, bool at_peers) const {
  return scopeOf(settings).with("store", at_peers ? "peers" : "endpoint");
}

}  // namespace idetcd::directive
