// What the program in the kernel answers for this process: the maps that it reads, and what feeds them. One for the
// process, through reloads. The first loop's thread, but for want() and refuse().
#pragma once

#include "base/metrics.h"
#include "kernel/answer_feed.h"
#include "kernel/program.h"
#include "net/event_loop.h"
#include "node/address_monitor.h"
#include "directive/xdp/kernel_counts.h"
#include "directive/xdp/listener_plan.h"
#include "directive/xdp/settings.h"
#include "resolve/directive.h"

namespace idetcd::directive {

class KernelAnswers final : public resolve::ProcessState {
 public:
  // How often what the kernel has counted is read.
  static constexpr std::chrono::milliseconds kCountInterval{500};

  static constexpr int kLookCounts = 10;      // until it is looked what 'idetcd xdp attach' has changed
  static constexpr int kReplacedCounts = 20;  // until it is logged that it is not

  explicit KernelAnswers(resolve::Process& process) : process_(process) {}
  ~KernelAnswers() override;

  // Of the configuration that is being built. `taken`: what the process has attached before it was confined, or why it
  // could not; nothing in a reload, which can open what is pinned, and continue with what runs. Fails only if `settings`
  // say that it is required.
  Result<void> want(const XdpSettings& settings, std::optional<Result<kernel::Attachment>> taken);

  void accept() override;
  void refuse() override;
  void onRoutes(const std::vector<resolve::ListenerRoutes>& routes) override;
  void stop() override;

 private:
  struct Metrics : metrics::Group {
    using Group::Group;
    metrics::Gauge attached{*this, "idetcd_xdp_attached", "Whether the kernel answers names of this process: 1 or 0."};
    metrics::Gauge names{*this, "idetcd_xdp_names", "Names that the kernel can answer."};
    metrics::Counter left_out{*this, "idetcd_xdp_left_out_total",
                              "Names and addresses that the kernel's maps had no room for: the sockets answer them."};
  };
  struct InUse {
    XdpSettings settings;
    kernel::Attachment attachment;
  };
  // The feed of one of the clusters' tables.
  struct Fed {
    const records::RecordStore* store;
    std::shared_ptr<kernel::AnswerFeed> feed;
    bool observes = false;
  };
  struct Written {
    SocketAddress address;
    kernel::Listener value;
  };

  Result<kernel::Attachment> find(const XdpSettings& settings, std::optional<Result<kernel::Attachment>> taken) const;
  const kernel::Maps& maps() const { return *in_use_->attachment.maps; }
  void begin();
  void end();
  void withdraw(std::span<const PlannedListener> plan);
  bool isSame(const kernel::ListenerZone& written, const PlannedZone& planned) const;
  bool isSame(const kernel::Listener& written, const PlannedListener& planned) const;
  void feed(std::span<const PlannedListener> plan);
  void drop(const Fed& fed);
  std::shared_ptr<kernel::AnswerFeed> makeFeed(const records::RecordStore& store);
  std::optional<size_t> freeZone(const kernel::ZoneIdentity& identity) const;
  void countOnly(std::span<const PlannedListener> plan);
  void writeListeners();
  bool isNative(uint32_t interface) const;
  void observe();
  bool isFed(size_t zone) const;
  void freeZones(std::span<const kernel::ZoneIdentity> wanted);
  bool isStillFeeding() const;
  bool look();
  void noteBare(const std::string& interface);
  void noteReplaced();
  void watchAddresses();
  void count();
  std::optional<kernel::ListenerZone> zoneOf(const SocketAddress& address, const PlannedZone& planned);
  std::optional<kernel::Listener> valueOf(const PlannedListener& planned);

  resolve::Process& process_;
  // Of the configuration that is being built.
  bool wanted_ = false;
  std::optional<InUse> next_;  // instead of what is in use
  std::optional<InUse> in_use_;
  std::vector<Fed> fed_;
  std::vector<Written> written_;
  std::map<std::string, kernel::InterfaceProgram> seen_;  // on the interfaces, when it was looked last
  bool listeners_are_incomplete_ = false;
  bool lacks_meters_ = false;             // for what was planned last
  std::vector<SocketAddress> listening_;  // all that this process listens to
  std::optional<Metrics> metrics_;
  std::optional<KernelCounts> counts_;
  uint64_t counts_ended_ = 0;
  int replaced_counts_ = 0;       // for so many intervals another process has fed the maps
  uint64_t left_out_before_ = 0;  // by feeds that are gone
  std::optional<net::Timer> timer_;
  std::optional<node::AddressMonitor> monitor_;
};

}  // namespace idetcd::directive
