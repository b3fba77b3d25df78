// The caches of all loops, so that an operator can drop what they hold. A cache belongs to its loop: it is asked there,
// in slices of a fraction of a millisecond. Any thread.
#pragma once

#include "dns/name.h"
#include "net/event_loop.h"
#include "resolver/cache.h"
#include "resolver/cache_saver.h"

namespace idetcd::resolver {

class LiveCaches : public std::enable_shared_from_this<LiveCaches> {
 public:
  struct FlushResult {
    uint64_t flushed = 0;
    std::string error;  // empty: all has gone, from the files of the caches too; else one line
  };
  using Done = std::function<void(const FlushResult&)>;

  // Drops what is cached of `zone` and all names below it; of the root: everything, at once. `done` is called when it has
  // gone from each cache and from the file of each, so that no restart brings it back: once, on any thread, perhaps
  // before this returns. What was asked for before and comes meanwhile or later may be kept. A file that is still being
  // read is not read on for the root; for another zone that is waited for.
  void flush(const dns::Name& zone, Done done);

  // Somebody who uses a cache, and the saver of its file if there is one, on a loop. Made and destroyed on the loop's
  // thread, or while that does not run, and before the loop is.
  class User {
   public:
    User(std::shared_ptr<LiveCaches> all, std::weak_ptr<Cache> cache, std::weak_ptr<CacheSaver> saver,
         net::EventLoop& loop);
    ~User();
    User(const User&) = delete;
    User& operator=(const User&) = delete;

   private:
    friend class LiveCaches;
    const std::shared_ptr<LiveCaches> all_;
    const std::weak_ptr<Cache> cache_;
    const std::weak_ptr<CacheSaver> saver_;  // null: it has no file
    net::EventLoop& loop_;
  };

 private:
  class Request;
  class Job;

  std::vector<std::shared_ptr<CacheSaver>> saversOf(const std::weak_ptr<Cache>& cache);

  std::mutex mutex_;  // held while a loop is posted to: a user that is known has a loop that lives
  std::vector<User*> users_;
};

}  // namespace idetcd::resolver
