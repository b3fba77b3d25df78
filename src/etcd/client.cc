#include "etcd/client.h"

#include "etcd/client_internal.h"
#include "etcd/keep_alive_internal.h"

namespace idetcd::etcd {

Result<void> Client::validateEndpoint(std::string_view endpoint) {
  auto address = EndpointAddress::parse(endpoint);
  if (!address) return tl::unexpected<Error>(std::move(address.error()));
  return {};
}

std::string Client::endpointHost(std::string_view endpoint) {
  const std::string name = EndpointAddress::parse(endpoint).value().name;
  const std::string host = name.substr(0, name.rfind(':'));
  return host.starts_with('[') ? host.substr(1, host.size() - 2) : host;
}

Result<void> Client::validateOptions(const Options& options) {
  if (options.endpoints.empty()) return fail("there is no endpoint");
  const EndpointAddress* first = nullptr;
  std::vector<EndpointAddress> addresses;
  for (const std::string& text : options.endpoints) {
    auto address = EndpointAddress::parse(text);
    if (!address) return tl::unexpected<Error>(std::move(address.error()));
    if (options.tls && !address->usesTls(options))
      return fail(fmt::format("endpoint '{}' is without TLS, but tls is configured: use https", text));
    addresses.push_back(std::move(*address));
  }
  first = &addresses.front();
  for (const EndpointAddress& address : addresses) {
    if (address.usesTls(options) != first->usesTls(options))
      return fail(fmt::format("endpoints with and without TLS: {} and {}", first->name, address.name));
  }
  if (options.tls && options.tls->certificate_file.empty() != options.tls->key_file.empty())
    return fail("a certificate needs a key, and a key a certificate");
  if (options.credentials && options.credentials->user.empty()) return fail("the user's name is empty");
  return {};
}

Result<void> Client::checkTlsFiles(const Options& options) {
  const auto address = EndpointAddress::parse(options.endpoints.front());
  if (!address || !address->usesTls(options)) return {};
  TlsSource source(options.tls.value_or(TlsFiles{}));
  const TlsSource::Look look = source.look();
  if (look.change == TlsSource::Change::kUnusable) return fail(look.message);
  return {};
}

std::optional<std::chrono::system_clock::time_point> Client::certificateEnd(const TlsFiles& files) {
  if (files.certificate_file.empty()) return std::nullopt;
  const auto end = etcd::certificateEnd(files.certificate_file);
  return end ? std::optional(*end) : std::nullopt;
}

Client::Client(CompletionThread& thread, Options options, const Logger& log)
    : impl_(std::make_unique<Impl>(thread, std::move(options), log)) {
  assert(impl_->options.endpoints.empty() || validateOptions(impl_->options));
}

Client::~Client() {
  // The stream keeps itself alive until its end, which stop() brings about if the post comes too late.
  if (impl_->keep_alive) {
    impl_->thread.post([stream = std::move(impl_->keep_alive)] { stream->cancel(); });
  }
}

namespace {

template <typename Response>
StoreResult<uint64_t> clusterOf(const StoreResult<Response>& answer) {
  if (!answer) return tl::unexpected<StoreError>(answer.error());
  return answer->header().cluster_id();
}

}  // namespace

Task<StoreResult<void>> Client::Impl::askCluster(CompletionThread::Impl& thread, std::shared_ptr<Endpoints> endpoints,
                                                 size_t index, std::string token, bool survives_stop,
                                                 std::chrono::nanoseconds timeout) {
  const CallTraits traits{.survives_stop = survives_stop};
  const pb::MemberListRequest members;
  auto listing = callAt(thread, *endpoints, index, &pb::Cluster::Stub::PrepareAsyncMemberList, members, traits, token,
                        timeout);
  StoreResult<uint64_t> answer = clusterOf(co_await listing);
  if (!answer && !endpointIsAway(answer.error()) && answer.error().code != ErrorCode::kCancelled) {
    pb::LeaseTimeToLiveRequest lease;
    lease.set_id(1);
    auto asking = callAt(thread, *endpoints, index, &pb::Lease::Stub::PrepareAsyncLeaseTimeToLive, lease, traits, token,
                         timeout);
    answer = clusterOf(co_await asking);
  }
  if (answer && *answer == 0) {
    endpoints->foundProxy(index);
  } else if (answer) {
    endpoints->identified(index, *answer);
  } else if (endpointIsAway(answer.error()) || answer.error().code == ErrorCode::kCancelled) {
    answer.error().sent = false;
    co_return tl::unexpected<StoreError>(std::move(answer.error()));
  } else if (answer.error().code == ErrorCode::kPermissionDenied) {
    endpoints->identified(index, 0);
  }
  co_return StoreResult<void>{};
}

namespace {

template <typename Identification>
Task<void> countDown(Task<StoreResult<void>> asking, std::shared_ptr<Endpoints> endpoints, size_t index,
                     std::shared_ptr<Identification> identification) {
  co_await asking;
  endpoints->disconnect(index);
  if (--identification->left == 0) identification->done.set();
}

}  // namespace

Task<void> Client::Impl::identifyAll(const std::string& token) {
  constexpr std::chrono::seconds kPatience{1};  // for endpoints that do not answer: they are asked before they are used
  if (options.self_founded || endpoints->count() <= 1 || thread.stopping()) co_return;
  if (!identification) {
    identification = std::make_shared<Identification>(public_thread, endpoints->count());
    endpoints->visit([&](size_t i) {
      public_thread.spawn(
          countDown(askCluster(thread, endpoints, i, token, false, kPatience), endpoints, i, identification));
    });
  }
  const std::shared_ptr<Identification> asked = identification;
  auto wait = asked->done.wait(kPatience);
  co_await wait;
}

CompletionThread& Client::thread() { return impl_->public_thread; }

std::vector<std::string> Client::endpoints() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->listed;
}

std::vector<Store::UnusedEndpoint> Client::unusedEndpoints() const { return impl_->endpoints->unused(); }

void Client::setEndpoints(std::vector<std::string> endpoints) {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->listed = std::move(endpoints);
  }
  if (thread().onThread()) return impl_->takeList();
  thread().post([impl = impl_.get()] { impl->takeList(); });
}

void Client::Impl::takeList() {
  std::unique_lock lock(mutex);
  const std::vector<std::string> list = listed;
  lock.unlock();
  if (!endpoints->set(list)) identification.reset();
  home_answers = 0;
}

}  // namespace idetcd::etcd
