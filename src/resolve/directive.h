// A directive of the Corefile, from its words to its handlers: one folder directive/NAME and one line of
// directive/order.cc. Directives that work together find each other with Block::find().
//
//   read()               parses and validates one server block's lines. Touches nothing outside
//   beforeConfinement()  takes what needs rights that the server gives up (sandbox/confinement.h); at the start only
//   prepare()            makes what all loops of the block share, and reads the files that they need
//   addTo()              makes what one loop owns, and adds it to that loop's chain, on that loop
//   start()              the configuration is in use
//   stop()               another one has taken its place; chains of this one may still live, for late answers
//
// read(), prepare() and listenAddresses() may block: they run before the loops or on the executor. The others must not.
// One configuration is built at a time; one that fails is thrown away, so nothing before start() may affect others.
#pragma once

#include <typeindex>

#include "base/executor.h"
#include "base/hash.h"
#include "base/ip_address.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/result.h"
#include "config/corefile.h"
#include "config/directive_cursor.h"
#include "net/descriptor_budget.h"
#include "net/event_loop.h"
#include "records/epoch.h"
#include "resolve/chain.h"
#include "resolve/finding.h"
#include "resolve/tcp_limits.h"
#include "sandbox/program_runner.h"

namespace idetcd::net {
class TlsServer;
}

namespace idetcd::resolve {

// How a directive has the Corefile read again. A digest is of the Corefile and of all that it imports.
struct Reloads {
  // Of what the files hold now, were it nonsense or not there at all. Blocks on the file system; any thread. Null: they
  // cannot be read again.
  std::function<std::string()> digest;
  // As SIGHUP does. On the first loop's thread.
  std::function<void()> start;
  // Of the configuration in use, and of the last one tried, maybe refused. The first loop's thread.
  std::string in_use;
  std::string tried;
  // One waits for another, or for what the last configuration still gives up. The first loop's thread.
  bool waits = false;
};

class Block;
class Directive;
class Process;
struct ListenerRoutes;  // router.h

// An operator's request to a directive without a running server: `idetcd NAME WHAT`.
struct LocalWork {
  std::string what;
  std::string user;  // who is to have the use of it; empty: nobody has been named
};

// One line of the table.
struct DirectiveType {
  std::string_view name;
  std::string_view syntax;  // of its own line: what to write instead of what was refused
  std::unique_ptr<Directive> (*make)();
  // Reads the files that the directive names, for `-validate`; may be null. Looks at the words alone, so that the rest
  // of the directive may be wrong too. Blocks on the file system.
  void (*check_files)(config::NamedFiles& files) = nullptr;
  bool once = false;  // in a server block
  // Does something on this machine by what the blocks of a Corefile say, with the rights of this process; null: there is
  // nothing. The answer is an object, as JSON; the error one line. May block.
  Result<std::string> (*work)(std::span<const Block> blocks, const LocalWork& asked) = nullptr;
  std::vector<config::OptionDefault> (*defaults)() = nullptr;  // of its arguments and options, as its README.md says them
  // For `idetcd doctor`: what is to be looked at on this machine for the blocks of a Corefile; null: nothing.
  std::vector<Check> (*checks)(std::span<const Block> blocks) = nullptr;
};

// A server block: its directives in the order of the table.
class Block {
 public:
  std::vector<config::ServerKey> keys;
  std::vector<std::pair<const DirectiveType*, std::unique_ptr<Directive>>> directives;

  // Null: the block has no such directive.
  template <typename T>
  T* find() const {
    for (const auto& [type, directive] : directives) {
      if (auto* found = dynamic_cast<T*>(directive.get())) return found;
    }
    return nullptr;
  }
  // Of the directive that is Configured by them. Null: the block has no such directive.
  template <typename Settings>
  const Settings* settings() const;
  // How clients speak on `port`, which is one of the block's.
  config::Scheme schemeOn(uint16_t port) const {
    const auto key = std::ranges::find(keys, port, &config::ServerKey::port);
    return key != keys.end() ? key->scheme : config::Scheme::kDns;
  }
};

// The context in which a loop's handlers are made.
struct LoopContext {
  Process& process;
  const Block& block;
  size_t worker;  // whose loop it is
  net::EventLoop& loop;
  std::span<const SocketAddress> listening;  // on the block's ports; an unspecified IP: on every address
};

class Directive {
 public:
  virtual ~Directive() = default;

  // `cursor` stands at the directive's name; `block` has its keys. Called again if the directive is repeated. Errors
  // are complete (config/directive_cursor.h), one a line.
  virtual Result<void> read(config::DirectiveCursor& cursor, const Block& block) = 0;
  // Once the whole Corefile has been read: all of its directives of this type, this one among them.
  virtual void checkTogether(std::span<Directive* const>) {}
  // After checkTogether(), with all that `block` has: what the Corefile alone shows to be wrong. The error is one line,
  // "plugin/NAME: …".
  virtual Result<void> check(const Block&) const { return {}; }
  // Where the block listens; empty: this directive does not say, and if none does, on every address. The port of each
  // is 0. The error is one line.
  virtual Result<std::vector<SocketAddress>> listenAddresses() const { return {}; }
  // Where it listens besides over TCP, as far as that can be said now; for `-validate`. May block.
  virtual std::vector<SocketAddress> endpoints() const { return {}; }
  // Once, at the start of the process: when the whole Corefile has been read and the server before has ended, with the
  // rights of the start and before they are given up, on the main thread, before there is another one. What it takes from
  // the kernel stays with this object until prepare(). May block. The error, one line, "plugin/NAME: …", ends the process.
  virtual Result<void> beforeConfinement() { return {}; }
  struct WrittenDirectory {
    std::string path;
    mode_t mode = 0755;  // if it has to be made
  };
  // Where the block keeps files. What the Corefile says at the start stays for as long as the process lives (sandbox/).
  virtual std::vector<WrittenDirectory> writtenDirectories() const { return {}; }
  // How many loops answer the block: the most that a directive asks for.
  virtual size_t workerCount() const { return 1; }
  // Says what clients may take up there, in those members that it has an opinion on; false: it has none. Asked in the
  // order of the table.
  virtual bool limitTcp(TcpLimits&) const { return false; }
  // After prepare(): what clients are shown that come over TLS or HTTPS. Null: this directive does not say.
  virtual std::shared_ptr<const net::TlsServer> tlsServer() const { return nullptr; }
  // After prepare(): says what is missing until the directive can answer, in a few words; "": nothing. Null: it always
  // can. The function is called on any thread, and may outlive the configuration.
  virtual std::function<std::string()> readiness() const { return nullptr; }
  // The errors of these are one line, "plugin/NAME: …".
  virtual Result<void> prepare(Process&, const Block&) { return {}; }  // must not make handles of a loop
  virtual Result<void> addTo(Chain&, const LoopContext&) { return {}; }
  virtual void start() {}
  virtual void stop() {}
};

// A directive whose lines come to a plain struct; others find it by that: Block::settings().
template <typename Settings>
class Configured : public Directive {
 public:
  const Settings& settings() const { return settings_; }

 protected:
  Settings settings_{};
};

template <typename Settings>
const Settings* Block::settings() const {
  const auto* found = find<Configured<Settings>>();
  return found != nullptr ? &found->settings() : nullptr;
}

template <typename T>
std::unique_ptr<Directive> makeDirective() {
  return std::make_unique<T>();
}

// State of a directive for the whole process, whatever the Corefile says at the moment: names that go on through a
// reload, sockets of its own. The first loop's thread, where nothing else is said.
class ProcessState {
 public:
  virtual ~ProcessState() = default;
  // The configuration that was built is in use from now on.
  virtual void accept() {}
  // After all were accepted: what is answered where from now on.
  virtual void onRoutes(const std::vector<ListenerRoutes>&) {}
  // It is thrown away, and gone already. May block, as prepare().
  virtual void refuse() {}
  // Whether something of the last configuration is still being given up; the next one waits. Process::settled is called
  // when it is done.
  virtual bool isSettling() const { return false; }
  // A few words for an operator on the current state; empty: nothing to report. Process::status_changed is called
  // when it is something else.
  virtual std::string status() const { return {}; }
  // The process is told to end. For how long it goes on as before, so that clients can go elsewhere; the longest wish
  // counts. Not before an end because of an error.
  virtual std::chrono::milliseconds prepareEnd() { return std::chrono::milliseconds(0); }
  // Writes down what the next process goes on with, within `budget`, while the loops go on. Not on a loop's thread.
  virtual void save(std::chrono::milliseconds) {}
  // Gives up what others could use, within `budget`. Any thread.
  virtual void release(std::chrono::milliseconds) {}
  // The process ends at once: what it has started must end with it.
  virtual void abandon() {}
  // No thread of it runs any more when this returns.
  virtual void stop() {}
};

// The process's services for directives.
class Process {
 public:
  Process(Logger logger, net::EventLoop& main_loop, records::EpochDomain& domain)
      : log(std::move(logger)), loop(main_loop), epochs(domain) {}
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  const Logger log;
  net::EventLoop& loop;  // the first one
  records::EpochDomain& epochs;
  const HashSeed hash_seed = randomHashSeed();
  // Of the blocks that have no secret of their own.
  const std::shared_ptr<const dns::ServerCookies> cookies =
      std::make_shared<const dns::ServerCookies>(dns::ServerCookies::withRandomSecret());
  // Of all that counts anything. What a directive counts is declared in its folder.
  const metrics::Registry metrics;
  // Of the directives that answer queries.
  DirectiveNames names;
  // All listeners and forwarders draw on it, those that a reload replaces too.
  const std::shared_ptr<net::DescriptorBudget> descriptors = net::DescriptorBudget::unlimited();
  // For what blocks; outlives every configuration.
  const std::shared_ptr<Executor> executor = std::make_shared<Executor>();
  // Below which files may be written; none: anywhere.
  std::optional<std::vector<std::string>> written_directories;
  // Fails with the reason if `directory` is none of them: a reload is the first to name it.
  Result<void> checkWritten(const std::string& directory) const {
    if (!written_directories || std::ranges::find(*written_directories, directory) != written_directories->end())
      return {};
    return fail("a directory that was not in the Corefile at the start needs a restart");
  }
  // 0, unless this process only tries whether a configuration can be opened: then the server that this one is to go on
  // for. What that one has, a port or the lock of a directory, counts as free.
  pid_t predecessor = 0;
  // The process that goes on in this one's place, once this one ends for it; 0: none, or unknown.
  pid_t successor = 0;
  // Runs what the Corefile has run. Null: there is nothing to be run.
  std::shared_ptr<sandbox::ProgramRunner> programs;
  std::function<void(const std::string& line)> fatal;  // ends the process with this line. Any thread
  std::function<void()> settled;                       // see ProcessState::isSettling(). On the loop's thread
  std::function<void()> status_changed;                // see ProcessState::status(). Any thread
  Reloads reloads;

  // The one T, made when it is first asked for, as T(*this). Any thread.
  template <typename T>
  T& state() {
    const std::lock_guard lock(mutex_);
    for (const auto& [type, state] : states_) {
      if (type == typeid(T)) return static_cast<T&>(*state);
    }
    auto made = std::make_unique<T>(*this);
    T& state = *made;
    states_.emplace_back(typeid(T), std::move(made));
    return state;
  }
  template <typename Visitor>
  void visitStates(Visitor&& visit) const {
    std::vector<ProcessState*> all;  // which stay as long as the process
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [type, state] : states_) all.push_back(state.get());
    }
    for (ProcessState* state : all) visit(*state);
  }

 private:
  mutable std::mutex mutex_;  // guards the list, not the states
  std::vector<std::pair<std::type_index, std::unique_ptr<ProcessState>>> states_;
};

}  // namespace idetcd::resolve
