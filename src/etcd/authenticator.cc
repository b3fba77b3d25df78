#include "base/random.h"
#include "etcd/client_internal.h"

namespace idetcd::etcd {

Authenticator::Authenticator(CompletionThread& thread, std::optional<Credentials> credentials, Counters& counters,
                             Logger log, Authenticate authenticate, std::string fixed)
    : credentials_(std::move(credentials)),
      fixed_(std::move(fixed)),
      counters_(counters),
      log_(std::move(log)),
      authenticate_(std::move(authenticate)),
      thread_(thread),
      obtained_(thread),
      random_(KernelRandom().next()) {}

Task<StoreResult<Token>> Authenticator::token(bool survives_stop) {
  if (!credentials_) co_return Token{fixed_, 0};
  while (!valid_) {
    const bool stopping = thread_.stopping();
    if (stopping && !survives_stop) co_return tl::unexpected<StoreError>(cancelledBeforeSending());
    if (obtaining_ && !stopping) {  // what others try while stopping has been cancelled
      auto wait = obtained_.wait(std::chrono::nanoseconds::max());
      co_await wait;
    } else {
      if (error_ && not_before_ && BootClock::now() < *not_before_) co_return tl::unexpected<StoreError>(*error_);
      auto attempt = obtain(survives_stop);
      co_await attempt;
    }
    // One attempt's failure is that of all callers that waited for it.
    if (!valid_ && error_) co_return tl::unexpected<StoreError>(*error_);
  }
  co_return token_;
}

bool Authenticator::dismiss(const Token& token, const StoreError& error) {
  if (!credentials_ || error.code != ErrorCode::kStaleToken) return false;
  // Of several calls that fail for one token only the first dismisses it: there may be a new one by now.
  if (token.generation == token_.generation) valid_ = false;
  return true;
}

Task<void> Authenticator::obtain(bool survives_stop) {
  obtaining_ = true;
  obtained_.reset();
  error_.reset();
  auto attempt = authenticate_(survives_stop);
  StoreResult<std::string> text = co_await attempt;
  obtaining_ = false;
  if (text) {
    accept(std::move(*text));
  } else {
    error_ = std::move(text.error());
    error_->sent = false;  // the call that needs the token has not been made
    if (!endpointIsAway(*error_) && error_->code != ErrorCode::kCancelled) refused(*error_);
  }
  obtained_.set();
}

void Authenticator::accept(std::string text) {
  if (not_before_) log_.info("etcd accepts user '{}'", credentials_->user);
  const bool off = text.empty();
  if (off && !off_) log_.warning("etcd has authentication switched off: going on without");
  off_ = off;
  token_ = {std::move(text), token_.generation + 1};
  valid_ = true;
  not_before_.reset();
  pause_ = kFirstPause;
  counters_.authentications.add();
}

void Authenticator::refused(const StoreError& error) {
  counters_.authentication_failures.add();
  if (!not_before_) log_.error("etcd refuses user '{}': {}", credentials_->user, error.message);
  std::uniform_real_distribution<double> jitter(0.5, 1.0);
  not_before_ = BootClock::now() + std::chrono::duration_cast<std::chrono::nanoseconds>(pause_ * jitter(random_));
  pause_ = std::min<std::chrono::nanoseconds>(pause_ * 2, kLongestPause);
}

Task<StoreResult<std::string>> Client::Impl::authenticate(bool survives_stop) {
  pb::AuthenticateRequest request;
  request.set_name(options.credentials->user);
  request.set_password(options.credentials->password);
  CallTraits traits;
  traits.repeatable = true;
  traits.survives_stop = survives_stop;
  traits.identifies = true;
  const std::string no_token;
  auto call = callWithToken(&pb::Auth::Stub::PrepareAsyncAuthenticate, request, traits, no_token);
  auto response = co_await call;
  if (!response) {
    if (response.error().code == ErrorCode::kAuthenticationOff) co_return std::string();
    co_return tl::unexpected<StoreError>(std::move(response.error()));
  }
  co_return std::move(*response->mutable_token());
}

}  // namespace idetcd::etcd
