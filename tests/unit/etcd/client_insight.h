// What a client keeps to itself.
#pragma once

#include <string>

#include "etcd/client_internal.h"

namespace idetcd::etcd {

struct ClientInsight {
  // That the next call goes to. Any thread.
  static std::string currentEndpoint(const Client& client) {
    const Endpoints& endpoints = *client.impl_->endpoints;
    return endpoints.name(endpoints.current());
  }
};

}  // namespace idetcd::etcd
