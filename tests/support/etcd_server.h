// Real etcd processes for tests: one member, or a cluster, on free loopback ports, with its data in a temporary
// directory.
//
// Every operation that changes the process returns when the change is there (ready, ended, stopped), by waiting for the
// event: etcd's own READY=1 message (sd_notify), the exit of the process, the stop reported by waitpid. What cannot be
// done throws std::runtime_error with the tail of etcd's log. Nothing is left behind: the destructor kills the process
// and removes the directory, and the kernel kills the process if the test dies first (PR_SET_PDEATHSIG, which is bound
// to the thread that called start(): call it from a thread that lives as long as the test). Not thread-safe. Speeds: a
// member is ready in about 0.7 s; leases can be as short as 1 s (the election time-out is 500 ms).
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

namespace idetcd::test_support {

class EtcdServer {
 public:
  // PEM files. etcd reads certificate and key again for each connection, the CAs at start.
  struct Tls {
    std::string certificate_file;
    std::string key_file;
    std::string ca_file;                 // the CA of client certificates; empty: none is asked for
    std::vector<std::string> ctl_flags;  // what etcdctl needs: --cacert=…
  };

  struct Options {
    std::optional<Tls> tls;                 // for clients
    std::string client_host = "127.0.0.1";  // where clients are listened to; "[::1]" for IPv6
    std::vector<std::string> extra_arguments;
  };

  EtcdServer();  // one member, ready
  explicit EtcdServer(Options options);
  ~EtcdServer();
  EtcdServer(const EtcdServer&) = delete;
  EtcdServer& operator=(const EtcdServer&) = delete;

  std::string endpoint() const;  // "http://127.0.0.1:PORT", https with TLS; the same over restarts
  uint16_t clientPort() const { return client_port_; }
  pid_t pid() const { return pid_; }  // -1: not running
  std::string log() const;            // what etcd wrote so far

  void start();    // REQUIRES: not running. Same ports, same data.
  void stop();     // SIGTERM
  void kill();     // SIGKILL
  void pause();    // SIGSTOP
  void resume();   // SIGCONT
  void restart();  // kill(), start()
  void wipe();     // REQUIRES: not running. The data is lost: the next start() is a new store, at revision 1.

  // Runs etcdctl (API v3) against this member and returns what it printed; throws if it fails.
  std::string ctl(const std::vector<std::string>& arguments) const;

  // Switches authentication on: user root with password "root", which ctl() uses from then on.
  void enableAuthentication();

 private:
  friend class EtcdCluster;
  struct Port;
  EtcdServer(Options options, std::string name);

  void launch();     // fork and exec; does not wait
  void waitReady();  // REQUIRES: launch()
  void signalAndReap(int signal);
  std::string logTail() const;

  Options options_;
  std::string name_;
  std::string directory_;
  bool authentication_ = false;
  std::string initial_cluster_;
  std::unique_ptr<Port> client_reservation_;
  std::unique_ptr<Port> peer_reservation_;
  uint16_t client_port_ = 0;
  uint16_t peer_port_ = 0;
  pid_t pid_ = -1;
  int notify_fd_ = -1;
};

// Members that form one cluster, ready. Default: three.
class EtcdCluster {
 public:
  explicit EtcdCluster(size_t members = 3);
  EtcdCluster(size_t members, EtcdServer::Options options);

  size_t size() const { return members_.size(); }
  EtcdServer& member(size_t index) { return *members_[index]; }
  std::vector<std::string> endpoints() const;
  // The member that leads now. Asks every running member until one names a leader that is running.
  size_t leader();
  // kill() all, start() all: a cluster without a majority never gets ready, so not one by one.
  void restartAll();

 private:
  std::vector<std::unique_ptr<EtcdServer>> members_;
};

}  // namespace idetcd::test_support
