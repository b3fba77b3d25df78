// Access to a client's private state.
#pragma once

#include <string>

#include "etcd/client_internal.h"

namespace idetcd::etcd {

struct ClientInsight {
  // That the next call goes to. Any thread, if setEndpoints() is not under way.
  static std::string currentEndpoint(const Client& client) {
    const Endpoints& endpoints = *client.impl_->endpoints;
    return endpoints.name(endpoints.current());
  }
  // Completion thread.
  static const void* currentChannel(const Client& client) {
    Endpoints& endpoints = *client.impl_->endpoints;
    return endpoints.channel(endpoints.current()).get();
  }
};

}  // namespace idetcd::etcd
