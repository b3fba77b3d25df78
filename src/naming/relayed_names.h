// Where the mirror of a node takes its names from: from a relay, which is another node that serves its own copy of them
// (relay.h), or from the store. It is a relay where the store lists one: that is so in a large cluster only. All else that a
// node asks, and whatever confirms that its names are the present, is the store's: a relay that is late or stands still
// makes names stale, and never shows old ones as fresh.
//
// A relay that fails is left for another one, or for the store: the mirror's next watch goes on from where the last one
// was. Where none of some is reached, as behind a firewall, the store is asked alone until one of them has answered a look
// that is beside the watch. Scheduler's thread only.
#pragma once

#include "naming/context.h"
#include "store/store.h"

namespace idetcd::naming {

// What a relay says of itself in the store.
struct RelayCard {
  std::vector<std::string> endpoints;  // https://ADDRESS:PORT
  std::string certificate;             // its own, in PEM
  std::string token;                   // who has it has read it in the store
  bool operator==(const RelayCard&) const = default;
};

std::string encodeCard(const RelayCard& card);
Result<RelayCard> decodeCard(std::string_view text);

class RelayedNames final : public store::Source {
 public:
  struct Options {
    // A cluster of at least twice as many names has a relay for so many; 0: none.
    int64_t fan_out = 0;
    int64_t limit = 1;                         // how many nodes the cluster may have
    std::vector<store::KeyRange> ranges = {};  // of the names
    std::string prefix;                        // of the keys of its relays
    // Makes a connection to a relay. Does not block. Null: what it says of itself is of no use.
    std::function<std::shared_ptr<store::Source>(const RelayCard&)> connect = {};
  };

  // `names`: how many there are, as far as they are known. What is passed by reference outlives this.
  RelayedNames(Context& context, Options options, std::function<size_t()> names)
      : context_(context), options_(std::move(options)), names_(std::move(names)) {}

  // From the relay of the last watch, if a revision is asked for; what that does not have in time, from the store.
  runtime::Task<store::StoreResult<store::RangeResult>> range(store::KeyRange range,
                                                              store::RangeOptions options) override;
  // At a relay, if there is one, or at the store.
  runtime::Task<store::StoreResult<std::unique_ptr<store::WatchStream>>> watch(
      std::vector<store::WatchRange> ranges) override;

  // Looks for a relay now and then, while the names come from the store. Until the protocol stops; at once if there can be
  // none.
  runtime::Task<void> lookRegularly();

  // This node is a relay itself: it takes its names from the store.
  void setRelay(bool is_relay) { is_relay_ = is_relay; }
  bool isRelayed() const { return relay_.has_value(); }
  // Any thread: the relay that the names come from, as people read it; empty: they come from the store.
  std::string place() const {
    const std::lock_guard lock(mutex_);
    return place_;
  }
  bool mayHaveRelays() const { return options_.fan_out > 0 && options_.limit >= 2 * options_.fan_out; }

 private:
  class Stream;
  struct Relay {
    std::string key;
    RelayCard card;
    std::string where;  // for the log
    std::shared_ptr<store::Source> source;
  };

  struct Listed {
    std::vector<Relay> relays;  // some of them
    int64_t count = 0;
    int64_t names = 0;  // in the store
  };
  runtime::Task<std::vector<Relay>> relaysForWatch();
  runtime::Task<std::vector<Relay>> findRelays();
  runtime::Task<bool> answers(Relay& relay);
  bool isLarge() const;
  runtime::Task<Listed> readListed();
  void add(const store::RangeResult& found, std::vector<Relay>* relays);
  void failed(const Relay& relay, const store::StoreError& error);
  bool isAvoided(const std::string& key) const;
  void follow(const std::optional<Relay>& relay);

  Context& context_;
  const Options options_;
  const std::function<size_t()> names_;
  bool is_relay_ = false;
  bool has_watched_ = false;
  bool looks_first_ = true;      // a new watch is asked of relays first
  std::optional<Relay> relay_;   // of the last watch; none: the store
  std::optional<Relay> better_;  // has answered since; for the next watch
  std::map<std::string, BootClock::time_point> avoided_until_;
  bool said_unreachable_ = false;
  mutable std::mutex mutex_;
  std::string place_;  // guarded by mutex_
};

}  // namespace idetcd::naming
