#include "app/application.h"

#include <cstdio>
#include <future>
#include <unistd.h>

#include "control/control.h"
#include "http/endpoints.h"

namespace idetcd::app {

namespace {

constexpr size_t kReloadDescriptors = 12;  // at least

}  // namespace

Application::Application(Logger log, std::shared_ptr<sandbox::ProgramRunner> programs, service::Given given)
    : log_(std::move(log)),
      process_(log_, loop_, epochs_),
      server_(loop_, epochs_, process_.descriptors, process_.metrics.scope()),
      metrics_(process_.metrics.scope(), log_, process_.descriptors),
      manager_(std::move(given.notify_socket), process_.executor, log_),
      sockets_(std::move(given.descriptors), manager_, log_),
      watchdog_(loop_, manager_.exists() ? given.watchdog : std::chrono::microseconds(0), [this] { manager_.alive(); }),
      slow_reload_(loop_,
                   [this] {
                     log_.warning("The reload is under way for {} s: it waits for a file or a host",
                                  kSlowReload.count());
                   }),
      lame_duck_(loop_, [this] { end(0); }),
      end_(loop_, [this] {
        log_.warning("What is still to be written takes too long");
        if (keeps_names_) quit(status_);
        at_rest_ = false;
        loop_.stop();
      }) {
  process_.programs = std::move(programs);
  server_.setStore(sockets_);
  process_.fatal = [this](const std::string& line) { loop_.post([this, line] { fatal(line); }); };
  process_.settled = [this] {
    if (std::exchange(process_.reloads.waits, false)) reload();
  };
  process_.status_changed = [this] { loop_.post([this] { reportStatus(); }); };
  process_.reloads.start = [this] { reload(); };
  for (const int signal : kHandledSignals) {
    signals_.push_back(std::make_unique<net::SignalWatcher>(loop_, signal, [this, signal] { onSignal(signal); }));
  }
}

Application::~Application() {
  process_.visitStates([](resolve::ProcessState& state) { state.stop(); });
  configuration_ = {};
  server_.close();
}

void Application::setPredecessor(pid_t pid) {
  process_.predecessor = pid;
  server_.setPredecessor(pid);
}

void Application::setReload(std::function<CorefileSource::Reading()> read) {
  read_corefile_ = std::move(read);
  process_.reloads.digest = [this] { return read_corefile_().digest; };
}

void Application::accept(Configuration configuration) {
  configuration_ = std::move(configuration);
  process_.reloads.in_use = process_.reloads.tried;
  process_.visitStates([](resolve::ProcessState& state) { state.accept(); });
  const auto routes = configuration_.takeRoutes();
  process_.visitStates([&routes](resolve::ProcessState& state) { state.onRoutes(routes); });
  configuration_.start();
  watchLoops();
  reportStatus();
}

void Application::watchLoops() {
  std::vector<net::EventLoop*> loops;
  for (const auto& worker : server_.workers()) loops.push_back(&worker->loop());
  watchdog_.watch(std::move(loops));
}

void Application::watchSuccessors() {
  if (handover_) successors_.emplace(loop_, handover_->fd(), [this] { onSuccessor(); });
}

void Application::reportStatus() {
  if (shutting_down_) return;
  std::vector<std::string> all;
  process_.visitStates([&all](const resolve::ProcessState& state) {
    if (std::string status = state.status(); !status.empty()) all.push_back(std::move(status));
  });
  manager_.status(all.empty() ? "serves" : fmt::format("{}", fmt::join(all, ", ")));
}

Result<void> Application::open(CorefileSource::Reading corefile) {
  process_.reloads.tried = corefile.digest;
  if (control_socket_.isOpen()) {
    process_.state<control::Control>();  // made first, so accepted first: the paths of the endpoints ask it
    auto served = process_.state<http::Endpoints>().serveLocally(std::move(control_socket_));
    if (!served) return served;
  }
  auto configuration = Configuration::make(std::move(*corefile.plan), process_);
  if (!configuration) return tl::unexpected(configuration.error());
  if (auto listening = configuration->listen(server_, process_); !listening) return listening;
  configuration_ = std::move(*configuration);
  process_.descriptors->fitToProcess();
  return {};
}

int Application::run() {
  if (auto started = server_.start(); !started) {
    fatal(started.error().message);
  } else {
    accept(std::move(configuration_));
    manager_.ready();
    watchSuccessors();
  }
  loop_.run();
  successors_.reset();
  if (listening_) return status_;  // some loop stands still
  configuration_ = {};             // what it shares with chains (a LoopProbe) asks through what goes next
  server_.close();
  if (!process_.executor->finish(isSettling() ? kReleaseBudget : kDrainBudget)) at_rest_ = false;
  return status_;
}

void Application::onSignal(int signal) {
  switch (signal) {
    case SIGTERM:
      log_.info("SIGTERM: Shutting down servers then terminating");
      return shutDown();
    case SIGINT:
      if (shutting_down_) {
        log_.info("SIGINT: Force quit");
        quit(2);
      }
      log_.info("SIGINT: Shutting down");
      return shutDown();
    case SIGQUIT:
      log_.info("SIGQUIT: Quitting process immediately");
      quit(0);
    case SIGUSR2:
      if (sockets_.isKept()) return makeWay(kRestartStatus);
      return log_.warning("SIGUSR2: No service manager keeps the sockets, so nothing is done");
    default:
      log_.info("{}: Reloading", signal == SIGHUP ? "SIGHUP" : "SIGUSR1");
      return reload();
  }
}

CorefileSource::Reading Application::readCorefile() const {
  const auto nothing = [](std::string why) {
    return CorefileSource::Reading{.name = {}, .digest = {}, .was_read = false, .plan = fail(std::move(why))};
  };
  if (!read_corefile_) return nothing("there is no file to read again");
  // A new configuration beside the old one needs descriptors; a library that gets none may end the process.
  if (const size_t left = net::freeDescriptors(); left < kReloadDescriptors) {
    return nothing(fmt::format("only {} descriptors are left (RLIMIT_NOFILE)", left));
  }
  return read_corefile_();
}

void Application::reload() {
  if (shutting_down_) return;
  if (building_) {
    process_.reloads.waits = true;
    return;
  }
  // Until a name is given up its member has its ticket and its files, which the new configuration may want.
  if (isSettling()) {
    log_.info("The reload waits until the names that the last one has dropped are given up");
    process_.reloads.waits = true;
    return;
  }
  manager_.reloading();
  building_ = process_.executor->submit([this] { build(); });
  if (building_) return slow_reload_.start(kSlowReload);
  manager_.ready();
  reportRefusal("there is no thread for it");
}

bool Application::isSettling() const {
  bool settling = false;
  process_.visitStates([&settling](const resolve::ProcessState& state) { settling |= state.isSettling(); });
  return settling;
}

// On the executor: everything is built beside what runs; only when nothing can fail any more does it take its place.
void Application::build() {
  auto [name, digest, was_read, plan] = readCorefile();
  auto built = std::make_shared<Result<Configuration>>(tl::unexpected(plan ? Error{} : plan.error()));
  if (plan) *built = Configuration::make(std::move(*plan), process_);
  loop_.post([this, digest = std::move(digest), built] { onBuilt(digest, std::move(*built)); });
}

// The listeners go over to it beside the loop too, so that no loop waits for another one, for a thread that ends, or
// for the descriptors to be counted. `digest` is empty if nothing was read.
void Application::onBuilt(const std::string& digest, Result<Configuration> built) {
  slow_reload_.stop();
  if (shutting_down_) return;
  if (!digest.empty()) process_.reloads.tried = digest;
  if (!built) return refuse(built.error());
  listening_ = true;
  const auto next = std::make_shared<Configuration>(std::move(*built));
  doBeforeEnd([this, next] {
    auto listening = next->listen(server_, process_);
    if (listening) process_.descriptors->fitToProcess();
    // If it is thrown away, then on the loop: what it shares with chains (a LoopProbe) has handles there.
    loop_.post([this, next, listening = std::move(listening)] {
      Configuration configuration = std::move(*next);
      if (!listening) return onListening(tl::unexpected(listening.error()));
      onListening(std::move(configuration));
    });
  });
}

void Application::onListening(Result<Configuration> built) {
  listening_ = false;
  if (shutting_down_) return;
  if (!built) return refuse(built.error());
  configuration_.stop();
  accept(std::move(*built));
  log_.info("Reloading complete");
  onReloaded();
}

void Application::reportRefusal(std::string_view why) {
  log_.error("Restart failed: {}", why);
  metrics_.countFailedReload();
}

// A failed one leaves nothing behind when the next one is built.
void Application::refuse(const Error& error) {
  reportRefusal(error.message);
  const auto throw_away = [this] {
    process_.visitStates([](resolve::ProcessState& state) { state.refuse(); });
    process_.descriptors->fitToProcess();
    loop_.post([this] { onReloaded(); });
  };
  if (!process_.executor->submit(throw_away)) throw_away();
}

void Application::onReloaded() {
  building_ = false;
  manager_.ready();
  watchSuccessors();
  if (std::exchange(process_.reloads.waits, false)) reload();
}

// Nothing is given back; but what this process has started ends with it, and no disk is waited for.
void Application::quit(int status) {
  if (process_.successor != 0) process_.successor = handover_->successor();  // it may have ended
  std::promise<void> abandoned;
  const auto abandon = [this, &abandoned] {
    process_.visitStates([](resolve::ProcessState& state) { state.abandon(); });
    abandoned.set_value();
  };
  if (!process_.executor->submit(abandon)) abandon();
  abandoned.get_future().wait_for(kFlushBudget);
  log_.flush(kFlushBudget);
  _exit(status);
}

void Application::shutDown() {
  if (shutting_down_) return;
  shutting_down_ = true;
  std::chrono::milliseconds wait{0};
  process_.visitStates([&wait](resolve::ProcessState& state) { wait = std::max(wait, state.prepareEnd()); });
  if (wait.count() == 0) return end(0);
  lame_duck_.start(wait);
}

// The names are given up first, beside the loop: queries are answered for as long as that takes.
void Application::end(int status) {
  manager_.stopping();
  lame_duck_.stop();
  beginEnd(status);
  doBeforeEnd([this] { process_.visitStates([](resolve::ProcessState& state) { state.release(kReleaseBudget); }); });
}

// For another process of this service, which goes on with the sockets and takes the names for its own again.
void Application::makeWay(int status) {
  if (shutting_down_) return;
  log_.info("Ending for the next process, which goes on with sockets and names");
  keeps_names_ = true;
  beginEnd(status);
}

void Application::beginEnd(int status) {
  shutting_down_ = true;
  ending_ = true;
  slow_reload_.stop();
  status_ = status;
  end_.start(kEndBudget);
  doBeforeEnd([this] { process_.visitStates([](resolve::ProcessState& state) { state.save(kReleaseBudget); }); });
}

// While another configuration is built the sockets are not this thread's to give.
void Application::onSuccessor() {
  successors_.reset();
  if (building_ || shutting_down_) return;
  const auto given = handover_->give(sockets_.kept());
  if (!given) log_.warning("A process that wants the sockets does not get them: {}", given.error().message);
  if (given && *given) {
    process_.successor = handover_->successor();
    return makeWay(0);
  }
  watchSuccessors();
}

// The reader of the line may be slow; it does not hold up the release.
void Application::fatal(const std::string& line) {
  if (ending_) return;
  doBeforeEnd([this, line] {
    log_.flush(kFlushBudget);
    printError(line);
  });
  end(1);
}

// `work` is done on the executor, and the loop goes on until it is. Where there is no thread for it, it is done here.
void Application::doBeforeEnd(const std::function<void()>& work) {
  ++undone_;
  const auto run = [this, work] {
    work();
    loop_.post([this] { onDoneBeforeEnd(); });
  };
  if (!process_.executor->submit(run)) run();
}

void Application::onDoneBeforeEnd() {
  if (--undone_ > 0 || !ending_) return;
  // Last, so that few queries wait for the next process, and not for long.
  if ((sockets_.isKept() || keeps_names_) && !std::exchange(takes_no_more_, true)) {
    return doBeforeEnd([this] { server_.stopTaking(kLateAnswersBudget); });
  }
  if (keeps_names_) quit(status_);
  loop_.stop();
}

}  // namespace idetcd::app
