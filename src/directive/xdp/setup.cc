// The directive `xdp`: the cluster's names are answered in the kernel, where packets come in.
#include "directive/idetcd/setup.h"

#include "directive/xdp/kernel_answers.h"
#include "directive/xdp/pinned.h"
#include "directive/xdp/settings.h"
#include "kernel/program.h"
#include "resolve/directive.h"

namespace idetcd::directive {

namespace {

// False only if it is certain that nothing is attached.
bool mayAnswer(const std::string& pin) {
  const auto links = kernel::readLinks(pin);
  return !links || std::ranges::any_of(*links, &kernel::LinkStatus::is_attached);
}

// What is pinned is brought to this binary's version where the process may do so, and used as it is where it may not, or
// where that fails: what answers has to be fed in any case.
Result<kernel::Attachment> adopt(const XdpSettings& settings) {
  const auto attached = kernel::attachPinned(settings.attach, settings.pin);
  auto maps = kernel::Maps::open(settings.pin);
  const bool lacks_rights = !attached && attached.error().code == ErrorCode::kPermissionDenied;
  if (!maps) {
    const bool were_there = maps.error().code != ErrorCode::kNotFound;
    return tl::unexpected(attached || (lacks_rights && were_there) ? maps.error() : attached.error());
  }
  const bool failed = !attached && !lacks_rights && kernel::hasProgram();
  if (failed && !mayAnswer(settings.pin)) return tl::unexpected(attached.error());
  return kernel::Attachment{.maps = std::move(*maps),
                            .failure = failed ? attached.error().message : std::string(),
                            .program = {},
                            .links = {}};
}

class XdpDirective final : public resolve::Configured<XdpSettings> {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block&) override {
    return xdpOptions().read(cursor, settings_);
  }
  void checkTogether(std::span<Directive* const> all) override {
    const auto& first = static_cast<const XdpDirective&>(*all.front());
    is_first_ = &first == this;
    differs_ = !first.settings().isSameAttachment(settings_) || first.settings().required != settings_.required;
  }
  Result<void> check(const resolve::Block& block) const override {
    if (block.find<IdetcdDirective>() == nullptr) return fail("plugin/xdp: the server block has no `idetcd`");
    if (differs_) return fail("plugin/xdp: every `xdp` of a Corefile has to say the same");
    return {};
  }
  Result<void> beforeConfinement() override {
    if (!is_first_) return {};
    taken_ = settings_.pin.empty() ? kernel::attach(settings_.attach) : adopt(settings_);
    for (const std::string& interface : settings_.attach.interfaces) {
      if (settings_.attach.mode == kernel::Mode::kNative && kernel::isVeth(interface)) losing_.push_back(interface);
    }
    if (!*taken_ && settings_.required) return fail(fmt::format("plugin/xdp: {}", taken_->error().message));
    return {};
  }
  Result<void> prepare(resolve::Process& process, const resolve::Block&) override {
    for (const std::string& interface : std::exchange(losing_, {})) {
      process.log.named("plugin/xdp")
          .warning("{} is a veth: in native mode answers are lost unless the other end has an XDP program", interface);
    }
    return process.state<KernelAnswers>().want(settings_, std::exchange(taken_, std::nullopt));
  }
  Result<void> addTo(resolve::Chain& chain, const resolve::LoopContext&) override {
    chain.parts.in_kernel = true;
    return {};
  }

 private:
  bool is_first_ = true;  // of the Corefile's
  bool differs_ = false;  // from the first
  std::optional<Result<kernel::Attachment>> taken_;
  std::vector<std::string> losing_;  // interfaces that lose answers as they are
};

}  // namespace

extern const resolve::DirectiveType kXdpDirective{
    .name = "xdp",
    .syntax = "xdp INTERFACE... [{ native|generic, required, max_names N, pin DIRECTORY }]",
    .make = resolve::makeDirective<XdpDirective>,
    .once = true,
    .work = workOnPinned,
    .defaults = [] { return xdpOptions().defaults(); }};

}  // namespace idetcd::directive
