// The running server: it owns the loops, the sockets and what is configured, handles signals, and takes everything down
// in order. Main thread.
#pragma once

#include <csignal>

#include "app/configuration.h"
#include "app/corefile_source.h"
#include "app/plan.h"
#include "app/process_metrics.h"
#include "app/watchdog.h"
#include "base/file_descriptor.h"
#include "base/log.h"
#include "base/result.h"
#include "net/event_loop.h"
#include "records/epoch.h"
#include "resolve/directive.h"
#include "sandbox/program_runner.h"
#include "server/server.h"
#include "service/manager.h"
#include "service/socket_store.h"

namespace idetcd::app {

class Application {
 public:
  // Handled from the constructor on, but acted on in run().
  static constexpr std::array kHandledSignals{SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2};

  // `given`: by the service manager, which is told when the server serves, under which names, and whether it lives.
  Application(Logger log, std::shared_ptr<sandbox::ProgramRunner> programs, service::Given given = {});
  ~Application();
  Application(const Application&) = delete;
  Application& operator=(const Application&) = delete;

  // Builds everything and opens the DNS sockets. etcd is not contacted yet. The error is one line. REQUIRES: the plan is
  // good.
  Result<void> open(CorefileSource::Reading corefile);

  // To be started again: the status that SIGUSR2 ends with (EX_TEMPFAIL of sysexits.h).
  static constexpr int kRestartStatus = 75;

  // Below which files may be written, if not anywhere. Before open().
  void setWrittenDirectories(std::vector<std::string> all) { process_.written_directories = std::move(all); }

  // Where programs on this machine ask and change things (control/): bound. Before open().
  void setControlSocket(FileDescriptor bound) { control_socket_ = std::move(bound); }

  // open() is tried only: what this process has, which is to be gone on for, counts as free. Before open().
  void setPredecessor(pid_t pid);

  // Where a successor takes the sockets from. Before run().
  void setHandover(service::HandoverSocket handover) { handover_ = std::move(handover); }

  // Builds the configuration of a reload, on the executor, maybe concurrently. Without it none. Before open().
  void setReload(std::function<CorefileSource::Reading()> read);

  // Joins the clusters and serves until a signal or a fatal error ends it. Returns the exit status.
  //   TERM, INT  goes on for as long as directives wish (`health`), gives the names up (at most kReleaseBudget), closes
  //              the sockets: 0. A second INT: 2, at once.
  //   QUIT       at once: 0
  //   USR2       answers what was read, and keeps the names and the sockets for the next process: kRestartStatus.
  //              Nothing, if no service manager keeps the sockets
  //   a successor at setHandover(): as USR2, with 0
  //   HUP, USR1  reads the Corefile again, while queries are answered as before; a bad one changes nothing, nor do
  //              too few descriptors. A cluster whose pattern is still there keeps its name. Signals that come
  //              meanwhile cause one more reload afterwards.
  int run();
  // After run(): whether nothing is under way any more. If a disk stands still something is, and the process has to end
  // by _exit(), without this object's destructor.
  bool isAtRest() const { return at_rest_; }

  const std::vector<std::string>& banner() const { return configuration_.banner(); }

 private:
  // Together with what the completion thread takes to stop, under the five seconds that a drain may take.
  static constexpr std::chrono::milliseconds kReleaseBudget{2000};
  static constexpr std::chrono::milliseconds kFlushBudget{200};

  // After which a reload that is not built yet is reported.
  static constexpr std::chrono::seconds kSlowReload{5};
  // How long a file system may hold up the end.
  static constexpr std::chrono::milliseconds kEndBudget{4500};
  static constexpr std::chrono::milliseconds kDrainBudget{200};
  // For answers of upstreams, while queries wait in sockets that outlive the process.
  static constexpr std::chrono::milliseconds kLateAnswersBudget{500};

  void accept(Configuration configuration);
  void onSignal(int signal);
  void reload();
  bool isSettling() const;
  void build();
  void onBuilt(const std::string& digest, Result<Configuration> built);
  void onListening(Result<Configuration> built);
  void refuse(const Error& error);
  void reportRefusal(std::string_view why);
  void onReloaded();
  void watchLoops();
  void watchSuccessors();
  void reportStatus();
  CorefileSource::Reading readCorefile() const;
  [[noreturn]] void quit(int status);
  void shutDown();
  void end(int status);
  void makeWay(int status);
  void beginEnd(int status);
  void onSuccessor();
  void fatal(const std::string& line);
  void doBeforeEnd(const std::function<void()>& work);
  void onDoneBeforeEnd();

  Logger log_;
  records::EpochDomain epochs_;
  net::EventLoop loop_;
  resolve::Process process_;
  std::vector<std::unique_ptr<net::SignalWatcher>> signals_;
  server::Server server_;
  ProcessMetrics metrics_;
  service::Manager manager_;
  service::SocketStore sockets_;
  Watchdog watchdog_;
  FileDescriptor control_socket_;  // until open()
  std::optional<service::HandoverSocket> handover_;
  std::optional<net::ReadWatcher> successors_;  // none while another configuration is built
  Configuration configuration_;
  std::function<CorefileSource::Reading()> read_corefile_;
  bool building_ = false;       // beside the loop; or what failed is being thrown away
  net::Timer slow_reload_;
  bool listening_ = false;      // server_ goes over to what was built, beside the loop
  bool shutting_down_ = false;  // no reload any more
  bool ending_ = false;         // what others could use is given up
  bool keeps_names_ = false;    // for the next process
  bool takes_no_more_ = false;  // queries, as the sockets outlive the process
  bool at_rest_ = true;
  size_t undone_ = 0;     // work beside the loop that the end waits for
  net::Timer lame_duck_;  // until end()
  net::Timer end_;        // of the time for giving the names up
  int status_ = 0;
};

}  // namespace idetcd::app
