// Errors of gRPC and etcd as StoreError. For etcd/*.cc only; any thread.
#pragma once

#include <grpcpp/support/status.h>

#include "etcd/client.h"

namespace idetcd::etcd {

// REQUIRES: !status.ok(). `cancelled_by_us`: what looks like the end of a cancelled call is one.
StoreError toError(const grpc::Status& status, bool cancelled_by_us);
// From the text that etcd gives where it has no code to give (cancel_reason of a watch).
StoreError toError(std::string_view cancel_reason);

StoreError cancelledBeforeSending();

// The endpoint, not the request, is at fault: another one may do better.
bool endpointIsAway(const StoreError& error);
StoreError noEndpoint();
StoreError strangeEndpoint();                   // of one that is not used
bool lookUpFailed(const StoreError& error);     // of the endpoint's name
bool handshakeFailed(const StoreError& error);  // of TLS

}  // namespace idetcd::etcd
