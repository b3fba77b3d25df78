#include "etcd/errors_internal.h"

namespace idetcd::etcd {
namespace {

// How gRPC fails calls on a channel that was made without credentials, which is what Endpoints does while there are no
// usable certificates.
constexpr std::string_view kNoCredentials = "Invalid credentials.";
constexpr std::string_view kLookUpFailed = "DNS resolution failed";

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

// etcd's own errors carry a code and a text ("etcdserver: …", and "auth: …" where it forgets the code). The text
// decides only where several errors share a code (etcd's api/v3rpc/rpctypes/error.go), or there is none.
struct Wording {
  std::string_view part;
  ErrorCode code;
};
constexpr Wording kWordings[]{
    {"requested lease not found", ErrorCode::kLeaseNotFound},
    {"revision has been compacted", ErrorCode::kCompacted},
    {"database space exceeded", ErrorCode::kNoSpace},
    {"permission denied", ErrorCode::kPermissionDenied},
    {"invalid auth token", ErrorCode::kStaleToken},
    {"user name is empty", ErrorCode::kStaleToken},
    {"revision of auth store is old", ErrorCode::kStaleToken},
    {"authentication failed", ErrorCode::kUnauthenticated},
    {"authentication is not enabled", ErrorCode::kAuthenticationOff},
    {"no leader", ErrorCode::kUnavailable},
    {"too many requests", ErrorCode::kUnavailable},
    {"larger than max", ErrorCode::kTooLarge},  // gRPC's own
};

ErrorCode codeFromText(std::string_view message) {
  for (const Wording& wording : kWordings) {
    if (contains(message, wording.part)) return wording.code;
  }
  return ErrorCode::kOther;
}

ErrorCode codeOf(const grpc::Status& status, bool cancelled_by_us) {
  const std::string& message = status.error_message();
  switch (status.error_code()) {
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return ErrorCode::kDeadlineExceeded;
    case grpc::StatusCode::UNAVAILABLE:
      return ErrorCode::kUnavailable;
    case grpc::StatusCode::NOT_FOUND:
      return contains(message, "member not found") ? ErrorCode::kNotFound : ErrorCode::kLeaseNotFound;
    case grpc::StatusCode::UNAUTHENTICATED:
      return ErrorCode::kStaleToken;
    case grpc::StatusCode::PERMISSION_DENIED:
      return ErrorCode::kPermissionDenied;
    case grpc::StatusCode::CANCELLED:
      return cancelled_by_us ? ErrorCode::kCancelled : ErrorCode::kUnavailable;
    // How a connection that breaks or a server that ends may look in the middle of a call ("Stream removed",
    // RST_STREAM); and errors for which etcd has forgotten the code.
    case grpc::StatusCode::UNKNOWN:
    case grpc::StatusCode::INTERNAL:
    case grpc::StatusCode::ABORTED:
    case grpc::StatusCode::DATA_LOSS:
      if (const ErrorCode code = codeFromText(message); code != ErrorCode::kOther) return code;
      return message.starts_with("etcdserver: ") || message.starts_with("auth: ") ? ErrorCode::kOther
                                                                                  : ErrorCode::kUnavailable;
    default:  // OUT_OF_RANGE, RESOURCE_EXHAUSTED, INVALID_ARGUMENT, FAILED_PRECONDITION are of several errors each
      return codeFromText(message);
  }
}

// gRPC's message for a call that it could not give to any connection. (ClientContext::peer() is no evidence: it stays
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

StoreError toError(const grpc::Status& status, bool cancelled_by_us) {
  assert(!status.ok());
  if (channelHasNoCredentials(status)) return {ErrorCode::kUnavailable, "there are no usable TLS certificates", false};
  return {codeOf(status, cancelled_by_us), status.error_message(), !certainlyNotSent(status)};
}

StoreError toError(std::string_view cancel_reason) {
  return {codeFromText(cancel_reason), std::string(cancel_reason), true};
}

StoreError cancelledBeforeSending() { return {ErrorCode::kCancelled, "stopping", false}; }

StoreError noEndpoint() { return {ErrorCode::kUnavailable, "no endpoint is known yet", false}; }

StoreError strangeEndpoint() {
  return {ErrorCode::kUnavailable, "the endpoint is of another cluster, or etcd's grpc-proxy", false};
}

bool endpointIsAway(const StoreError& error) {
  return error.code == ErrorCode::kUnavailable || error.code == ErrorCode::kDeadlineExceeded;
}

// gRPC has one code, UNAVAILABLE, for both, and says nothing else of them.
bool lookUpFailed(const StoreError& error) { return error.message.starts_with(kLookUpFailed); }

// No code of its own either: it is in the text of UNAVAILABLE.
bool handshakeFailed(const StoreError& error) { return contains(error.message, "handshake"); }

}  // namespace idetcd::etcd
