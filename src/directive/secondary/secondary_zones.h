// Keeps zones of a ZoneSet as their primaries have them: as often as the SOA says, and when a primary says so (NOTIFY).
//
//   no copy yet         asked again after 1 s, and each time after twice as long, up to 10 s; answered with SERVFAIL
//   copy                its serial is asked for after `refresh`, or after `retry` where no primary has answered
//   that of others      served until one of these primaries has sent its zone as a whole, whatever its serial
//   older than `expire` SERVFAIL; not before it was asked for again
//
// A zone is asked for in turns: a primary's serial, with a place of this primary; then, if it is a later one, the zone itself,
// with a place of all transfers besides. So silent primaries hold no place but their own. Of the zones that wait, the one
// that has waited longest comes next; one of which a primary has notified counts as having waited 10 s more. The primaries are
// asked one after the other, until one answers. A zone that cannot be used leaves the copy as it is. On its loop's thread, but
// putKept().
#pragma once

#include "base/executor.h"
#include "base/log.h"
#include "base/random.h"
#include "directive/file/zone_set.h"
#include "directive/secondary/incoming_transfer.h"
#include "resolve/directive.h"

namespace idetcd::directive {

// Of one zone. Written on the loop's thread.
struct SecondaryCounters : metrics::Group {
  using Group::Group;

  metrics::Counter transfers{*this, "idetcd_secondary_transfers_total", "Zones that were taken over from a primary."};
  metrics::Counter failures{*this, "idetcd_secondary_failures_total", "Times that no primary of a zone has answered with it."};
  metrics::Gauge serial{*this, "idetcd_secondary_serial", "Serial of the zone's copy; 0: there is none."};
};

// Copies that go on through a reload: those that the last configuration still has. Any thread.
class KeptCopies final : public resolve::ProcessState {
 public:
  struct Copy {
    std::shared_ptr<const zones::Zone> zone{};
    BootClock::time_point confirmed_at{};  // when a primary had this serial
    bool of_others = false;                // of other primaries, or with another key: the zone of these may be another
  };

  explicit KeptCopies(resolve::Process&) {}

  // Of a zone: with its primaries and the name of their key, and with its server block. Either may change.
  using Keys = std::array<std::string, 2>;
  // The first that is there.
  Copy find(const Keys& keys) const;
  void put(const Keys& keys, const Copy& copy);

 private:
  struct Kept {
    std::weak_ptr<const zones::Zone> zone;
    BootClock::time_point confirmed_at;
    bool of_others = false;
  };
  mutable std::mutex mutex_;  // guards copies_
  std::map<std::string, Kept> copies_;
};

// For the questions and transfers that are under way in this process, until their zones are built; and which primaries are
// silent. Any thread.
class SecondaryPlaces final : public resolve::ProcessState {
 public:
  static constexpr size_t kMost = 10;               // transfers
  static constexpr size_t kOfPrimary = 3;           // zones that one is asked for
  static constexpr std::chrono::minutes kSilent{1};
  explicit SecondaryPlaces(resolve::Process&) {}

  // Counts for as long as it lives.
  using Place = std::shared_ptr<const void>;
  // Null: there are as many as may be.
  Place enterTransfer();
  Place enter(const SocketAddress& primary);

  void note(const SocketAddress& primary, bool answers);
  // It has not answered the last time: less than kSilent ago, or it is being asked again.
  bool isSilent(const SocketAddress& primary) const;

 private:
  struct Primary {
    size_t asked = 0;
    std::optional<BootClock::time_point> silent_since{};
  };
  struct State {
    std::mutex mutex;  // guards all
    size_t transfers = 0;
    std::map<SocketAddress, Primary> primaries;
  };

  Place place(size_t& count, size_t most);

  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

struct SecondarySettings {
  std::vector<dns::Name> zones{};             // the server block's where none are named
  std::vector<SocketAddress> primaries{};
  std::string key{};                          // with which questions are signed; empty: with none
  std::vector<dns::Name> fallthrough{};       // zones; `fallthrough` without any is the root
  std::string block{};                        // which one it is: its keys and addresses
};

class SecondaryZones {
 public:
  static constexpr std::chrono::milliseconds kTick{100};
  static constexpr std::chrono::milliseconds kSoon{20};  // after a place has become free

  struct Context {
    net::EventLoop& loop;
    std::shared_ptr<ZoneSet> set;
    KeptCopies& kept;
    SecondaryPlaces& places;
    std::shared_ptr<Executor> executor;
    Logger log;
    metrics::Scope metrics{};
    // Of a key's name in the settings; null: none.
    std::function<const tsig::Key*(const std::string& name)> key_of{};
    bool keeps_changes = false;  // for those to whom the zones are handed on
  };

  SecondaryZones(Context context, const std::vector<SecondarySettings>& settings);
  ~SecondaryZones();
  SecondaryZones(const SecondaryZones&) = delete;
  SecondaryZones& operator=(const SecondaryZones&) = delete;

  // The copy that is there from before a reload; else the set knows only that there is this zone. Before the loops.
  static void putKept(const SecondarySettings& settings, const KeptCopies& kept, ZoneSet& set);

  // The zone has changed, the primary with this address says, which is asked first; no sooner than a second after the last
  // question.
  void onNotify(const dns::Name& zone, const IpAddress& from);

 private:
  class Copy;

  void onTimer();
  void lookSoon();

  const Context context_;
  SecureRandom random_;
  std::vector<std::shared_ptr<Copy>> copies_;
  bool is_soon_ = false;  // the timer's next expiry
  net::Timer timer_;
};

}  // namespace idetcd::directive
