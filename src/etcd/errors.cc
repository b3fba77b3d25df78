#include <string_view>

#include "etcd/errors_internal.h"

namespace idetcd::etcd {
namespace {

// How gRPC fails calls on a channel that was made without credentials, which is what Endpoints does while there are no
// usable certificates.
constexpr std::string_view kNoCredentials = "Invalid credentials.";
constexpr std::string_view kLookUpFailed = "DNS resolution failed";

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

// etcd's own errors carry a code and a text ("etcdserver: …", and "auth: …" where it forgets the code). The text
// decides where several errors share a code.
ErrorCode codeFromText(std::string_view message) {
  if (contains(message, "requested lease not found")) return ErrorCode::kLeaseNotFound;
  if (contains(message, "revision has been compacted")) return ErrorCode::kCompacted;
  if (contains(message, "database space exceeded")) return ErrorCode::kNoSpace;
  if (contains(message, "permission denied")) return ErrorCode::kPermissionDenied;
  if (contains(message, "invalid auth token") || contains(message, "user name is empty") ||
      contains(message, "authentication failed") || contains(message, "revision of auth store is old"))
    return ErrorCode::kUnauthenticated;
  if (contains(message, "no leader") || contains(message, "too many requests")) return ErrorCode::kUnavailable;
  return ErrorCode::kOther;
}

ErrorCode codeOf(const grpc::Status& status, bool cancelled_by_us) {
  const std::string& message = status.error_message();
  if (const ErrorCode code = codeFromText(message); code != ErrorCode::kOther) return code;
  const bool from_etcd = message.starts_with("etcdserver: ") || message.starts_with("auth: ");
  switch (status.error_code()) {
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return ErrorCode::kDeadlineExceeded;
    case grpc::StatusCode::UNAVAILABLE:
      return ErrorCode::kUnavailable;
    case grpc::StatusCode::UNAUTHENTICATED:
      return ErrorCode::kUnauthenticated;
    case grpc::StatusCode::PERMISSION_DENIED:
      return ErrorCode::kPermissionDenied;
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return contains(message, "larger than max") ? ErrorCode::kTooLarge : ErrorCode::kOther;
    case grpc::StatusCode::CANCELLED:
      return cancelled_by_us ? ErrorCode::kCancelled : ErrorCode::kUnavailable;
    // How a connection that breaks or a server that ends may look in the middle of a call ("Stream removed",
    // RST_STREAM).
    case grpc::StatusCode::UNKNOWN:
    case grpc::StatusCode::INTERNAL:
    case grpc::StatusCode::ABORTED:
    case grpc::StatusCode::DATA_LOSS:
      return from_etcd ? ErrorCode::kOther : ErrorCode::kUnavailable;
    default:
      return ErrorCode::kOther;
  }
}

// What gRPC says of a call that it could not give to any connection. (ClientContext::peer() is no evidence: it stays
// empty for calls that were sent and not answered.) Another wording would only make the failure ambiguous, which is
// safe.
bool certainlyNotSent(const grpc::Status& status) {
  const std::string& message = status.error_message();
  return status.error_code() == grpc::StatusCode::UNAVAILABLE &&
         (message.starts_with("failed to connect to all addresses") || message.starts_with(kLookUpFailed));
}

bool channelHasNoCredentials(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::INVALID_ARGUMENT && status.error_message() == kNoCredentials;
}

}  // namespace

EtcdError toError(const grpc::Status& status, bool cancelled_by_us) {
  if (channelHasNoCredentials(status)) return {ErrorCode::kUnavailable, "there are no usable TLS certificates", false};
  return {codeOf(status, cancelled_by_us), status.error_message(), !certainlyNotSent(status)};
}

EtcdError toError(std::string_view cancel_reason) {
  return {codeFromText(cancel_reason), std::string(cancel_reason), true};
}

EtcdError cancelledBeforeSending() { return {ErrorCode::kCancelled, "stopping", false}; }

bool endpointIsAway(const EtcdError& error) {
  return error.code == ErrorCode::kUnavailable || error.code == ErrorCode::kDeadlineExceeded;
}

bool lookUpFailed(const EtcdError& error) { return error.message.starts_with(kLookUpFailed); }

bool handshakeFailed(const EtcdError& error) { return contains(error.message, "handshake"); }

bool tokenIsStale(const EtcdError& error) {
  return error.code == ErrorCode::kUnauthenticated &&
         (contains(error.message, "invalid auth token") || contains(error.message, "user name is empty") ||
          contains(error.message, "revision of auth store is old"));
}

bool authenticationIsOff(const EtcdError& error) { return contains(error.message, "authentication is not enabled"); }

}  // namespace idetcd::etcd
