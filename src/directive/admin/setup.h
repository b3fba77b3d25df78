// The directive `admin`: a page that shows operators the cluster and this node, and what it shows as JSON.
#pragma once

#include "http/listen_address.h"
#include "resolve/directive.h"

namespace idetcd::directive {

class AdminDirective final : public resolve::Directive {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block& block) override;
  Result<void> prepare(resolve::Process& process, const resolve::Block& block) override;
  void start() override;

  const http::ListenAddress& address() const { return address_; }

 private:
  http::ListenAddress address_;
  resolve::Process* process_ = nullptr;
  std::vector<SocketAddress> listening_;
};

extern const resolve::DirectiveType kAdminDirective;

}  // namespace idetcd::directive
