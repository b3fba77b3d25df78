// Manages the answers of the program in the kernel: the maps that it reads, and their feed. One for the
// process, through reloads. The first loop's thread, but for want() and refuse().
#pragma once

#include <set>

#include "base/metrics.h"
#include "directive/xdp/listener_plan.h"
#include "kernel/answer_feed.h"
#include "kernel/program.h"
#include "net/event_loop.h"
#include "node/address_monitor.h"
#include "resolve/directive.h"
#include "resolve/query_meter.h"
#include "resolve/query_samples.h"

namespace idetcd::directive {

// Brings the counts of the program in the kernel into the numbers of this process: those of the blocks' queries
// (resolve::QueryMeter), of the last minutes (resolve::QuerySamples), and its own. The first loop's thread.
class KernelCounts : private metrics::Group {
 public:
  // A time that a query takes in the kernel, for histograms: it is too short for a clock to be worth reading.
  static constexpr std::chrono::nanoseconds kDuration{500};

  static constexpr std::array<const char*, kernel::kRcodes> kRcodeNames{"NOERROR", "NXDOMAIN"};
  static constexpr std::array<std::string_view, kernel::kPassReasons> kReasons{
      "checksum", "message", "edns", "type", "zone", "name", "expired", "changing", "room"};

  // Counts what comes from now on.
  KernelCounts(std::shared_ptr<const kernel::Maps> maps, metrics::Scope scope,
               std::shared_ptr<resolve::QuerySamples> samples);

  // Queries of one zone at one address.
  using Subject = std::pair<SocketAddress, std::string>;

  // The index in the map of meters for `of`, which is counted in `meter` too (may be null), as answered by the directive
  // `by`. The same for the same subject. None: all are in use.
  std::optional<uint16_t> meterFor(const Subject& of, std::shared_ptr<resolve::QueryMeter> meter,
                                   resolve::DirectiveId by);

  // Others are counted for the last time, and their meters become free.
  void keepOnly(const std::set<Subject>& subjects);

  // Adds what has come since the last time.
  void update(BootClock::time_point now);

 private:
  struct Answered : metrics::Counter {
    explicit Answered(const metrics::Scope& scope)
        : Counter(scope, "idetcd_xdp_answered_total", "Queries that the program in the kernel has answered.") {}
  };
  struct Source {
    std::optional<Subject> of;  // none: it is free
    std::shared_ptr<resolve::QueryMeter> meter;
    resolve::DirectiveId by{};
    kernel::Meter seen{};
  };

  uint64_t add(Source& source, const kernel::Meter& now);
  metrics::Counter& answered(size_t type, size_t rcode);

  const std::shared_ptr<const kernel::Maps> maps_;
  const std::shared_ptr<resolve::QuerySamples> samples_;
  std::array<Source, kernel::kMeters> sources_;
  std::map<std::pair<size_t, size_t>, std::unique_ptr<Answered>> answered_;  // by type and rcode
  metrics::CountersBy<kernel::PassReason, kernel::kPassReasons> passed_;
  std::array<uint64_t, kernel::kPassReasons> seen_passed_;
};

// The settings of the directive `xdp`, checked.
struct XdpSettings {
  kernel::AttachOptions attach;
  bool required = false;
  std::string pin;  // the directory; empty: the program ends with the process

  bool isSameAttachment(const XdpSettings& other) const {
    return attach.interfaces == other.attach.interfaces && attach.mode == other.attach.mode &&
           attach.max_names == other.attach.max_names && pin == other.pin;
  }
};

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
