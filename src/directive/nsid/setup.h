// The directive `nsid`: what a node says of itself.
#pragma once

#include "directive/nsid/identity.h"
#include "resolve/directive.h"

namespace idetcd::directive {

class NsidDirective final : public resolve::Directive {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block& block) override;
  // The identity of a block of no cluster. Of another one `idetcd` makes it.
  Result<void> prepare(resolve::Process& process, const resolve::Block& block) override;
  Result<void> addTo(resolve::Chain& chain, const resolve::LoopContext& context) override;

  const std::string& data() const { return data_; }  // empty: the node's name

 private:
  std::string data_;
  std::shared_ptr<const Identity> identity_;
};

// This machine's; empty: it has none.
std::string hostName();

// Has a chain say which node this is: NSID, and the names of class CH.
void addIdentity(resolve::Chain& chain, std::shared_ptr<const Identity> identity);
// The names alone.
void addServerNames(resolve::Chain& chain, std::shared_ptr<const Identity> identity);

extern const resolve::DirectiveType kNsidDirective;

}  // namespace idetcd::directive
