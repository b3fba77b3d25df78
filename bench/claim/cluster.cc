// N nodes that start at the same moment, and rest then: how that grows with N. Each is the protocol of the server with a
// table of all names; all are in one process and over a few shared connections, with one etcd, so that the processors do
// etcd's work and the protocol's, not that of N processes.
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <future>
#include <memory>
#include <netinet/in.h>
#include <set>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>

#include "common/arguments.h"
#include "etcd/client.h"
#include "etcd/completion_thread.h"
#include "naming/protocol.h"
#include "node/uuid.h"
#include "records/epoch.h"
#include "records/record_store.h"
#include "support/etcd_server.h"

namespace idetcd::bench {
namespace {

constexpr char kUsage[] =
    "usage: cluster_bench [--nodes N] [--most 800] [--connections 16] [--lease 20] [--rest 60] [--churn 60]\n"
    "Starts an etcd and N nodes; without --nodes 100, then twice as many, up to --most, and says with which power\n"
    "of N each column grows. --rest: seconds at rest. --churn: seconds in which a tenth of the nodes end, and as many\n"
    "come; 0: none do. Ends with 1 if the names were not 1 to N.\n";
constexpr char kPattern[] = "worker{{.ID}}.tf.local.";
constexpr std::chrono::seconds kMostStart{600};

using Clock = std::chrono::steady_clock;

double secondsSince(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// What etcd says of itself.
struct Usage {
  double requests = 0;   // messages of clients
  double events = 0;     // in all watches
  double sent = 0;       // bytes to clients
  double processor = 0;  // seconds
  double memory = 0;     // bytes
};

std::string readMetrics(uint16_t port) {
  const int connection = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string text;
  constexpr std::string_view kRequest = "GET /metrics HTTP/1.0\r\n\r\n";
  if (::connect(connection, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
      ::send(connection, kRequest.data(), kRequest.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(kRequest.size())) {
    std::array<char, 65536> part{};
    for (ssize_t got = 0; (got = ::recv(connection, part.data(), part.size(), 0)) > 0;)
      text.append(part.data(), static_cast<size_t>(got));
  }
  ::close(connection);
  return text;
}

Usage readUsage(const test_support::EtcdServer& server) {
  const std::string text = readMetrics(server.clientPort());
  // Of all series of a name.
  const auto sum = [&text](const std::string& name) {
    double total = 0;
    for (size_t at = text.find("\n" + name); at != std::string::npos; at = text.find("\n" + name, at + 1)) {
      const size_t end = text.find('\n', at + 1);
      const size_t value = text.rfind(' ', end);
      total += std::strtod(text.c_str() + value, nullptr);
    }
    return total;
  };
  return {.requests = sum("grpc_server_msg_received_total{"),
          .events = sum("etcd_debugging_mvcc_events_total "),
          .sent = sum("etcd_network_client_grpc_sent_bytes_total "),
          .processor = sum("process_cpu_seconds_total "),
          .memory = sum("process_resident_memory_bytes ")};
}

struct Node {
  Node(etcd::CompletionThread& thread, etcd::Client& client, int64_t nodes, std::chrono::seconds lease)
      : protocol(thread, client, random, records, options(nodes, lease), {}) {}

  naming::Protocol::Options options(int64_t nodes, std::chrono::seconds lease) {
    naming::Protocol::Options made{
        .claim = {
            .pattern = slots::NamePattern::parse(kPattern, nodes).value(),
            .lease = lease,
            .record = {
                .ipv4 = IpAddress::v4({192, 0, 2, 1}), .ipv6 = {}, .port = "53", .id = node::randomUuid(random)}}};
    made.on_released = [this] { released.set_value(); };
    return made;
  }

  KernelRandom random;
  records::EpochDomain epochs;
  records::RecordStore records{epochs, {}};
  std::promise<void> released;
  naming::Protocol protocol;
};

struct Column {
  const char* title;
  int width;
  int digits;
};
constexpr std::array kColumns{Column{"named s", 9, 2},         Column{"known s", 9, 2},
                              Column{"requests/claim", 15, 1}, Column{"losses", 7, 0},
                              Column{"requests", 9, 0},        Column{"events", 9, 0},
                              Column{"MB sent", 9, 1},         Column{"etcd cpu s", 11, 1},
                              Column{"etcd MB", 8, 0},         Column{"rest: req/node/s", 17, 3},
                              Column{"B/node/s", 9, 1},        Column{"etcd cpu %", 11, 1},
                              Column{"churn: losses", 15, 0},  Column{"etcd cpu %", 11, 1}};
using Row = std::array<double, kColumns.size()>;

struct Result {
  Row row{};
  bool is_dense = false;
};

class Run {
 public:
  Run(int64_t nodes, int connections, std::chrono::seconds lease) : count_(nodes), lease_(lease) {
    etcd::Client::Options options;
    options.endpoints = {server_.endpoint()};
    for (int i = 0; i < connections; ++i)
      clients_.push_back(std::make_unique<etcd::Client>(thread_, options, Logger{}));
    for (int64_t i = 0; i < nodes; ++i) nodes_.push_back(makeNode(i));
  }
  ~Run() {
    for (const auto& node : nodes_) stop(node);
    for (const auto* nodes : {&nodes_, &ended_}) {
      for (const auto& node : *nodes) node->released.get_future().wait();
    }
    thread_.stop();
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  Result measure(std::chrono::seconds rest, std::chrono::seconds churn) {
    const Usage before = readUsage(server_);
    const Clock::time_point begin = Clock::now();
    for (const auto& node : nodes_) node->protocol.start(node);
    const double named =
        secondsUntil(begin, [](const Node& node) { return node.protocol.name().ownership().has_value(); });
    const double known =
        secondsUntil(begin, [this](const Node& node) { return static_cast<int64_t>(node.records.size()) == count_; });
    const Usage started = readUsage(server_);
    const double requests_of_claims = claimRequests() / static_cast<double>(count_);
    std::this_thread::sleep_for(2 * lease_);
    const Usage settled = readUsage(server_);
    std::this_thread::sleep_for(rest);
    const Usage rested = readUsage(server_);
    const double losses_before = losses();
    if (churn.count() > 0) replaceTenth(churn);
    const Usage churned = readUsage(server_);
    const double losses_of_churn = losses() - losses_before;
    const double node_seconds = static_cast<double>(count_) * std::chrono::duration<double>(rest).count();
    return {.row = {named, known, requests_of_claims, losses_before, started.requests - before.requests,
                    started.events - before.events, (started.sent - before.sent) / 1e6,
                    started.processor - before.processor, started.memory / 1e6,
                    (rested.requests - settled.requests) / node_seconds, (rested.sent - settled.sent) / node_seconds,
                    percent(rested.processor - settled.processor, rest), losses_of_churn,
                    percent(churned.processor - rested.processor, churn)},
            .is_dense = isDense()};
  }

 private:
  std::shared_ptr<Node> makeNode(int64_t number) {
    etcd::Client& client = *clients_[static_cast<size_t>(number) % clients_.size()];
    return std::make_shared<Node>(thread_, client, count_, lease_);
  }
  void stop(const std::shared_ptr<Node>& node) {
    thread_.post([node] { node->protocol.stop(); });
  }
  static double percent(double processor, std::chrono::seconds time) {
    return time.count() == 0 ? 0 : 100 * processor / std::chrono::duration<double>(time).count();
  }

  // One in ten, evenly over this time, and then until all own a name again. Those that have ended lose nothing.
  void replaceTenth(std::chrono::seconds time) {
    const Clock::time_point begin = Clock::now();
    const int64_t steps = std::max<int64_t>(count_ / 10, 1);
    for (int64_t step = 0; step < steps; ++step) {
      std::this_thread::sleep_until(begin + step * std::chrono::duration_cast<Clock::duration>(time) / steps);
      const int64_t number = step * count_ / steps;
      std::shared_ptr<Node>& node = nodes_[static_cast<size_t>(number)];
      stop(node);
      ended_.push_back(std::exchange(node, makeNode(number)));
      node->protocol.start(node);
    }
    std::this_thread::sleep_until(begin + time);
    secondsUntil(begin, [](const Node& node) { return node.protocol.name().ownership().has_value(); });
  }

  template <typename Condition>
  double secondsUntil(Clock::time_point begin, const Condition& condition) {
    constexpr std::chrono::milliseconds kLook{20};
    while (secondsSince(begin) < kMostStart.count()) {
      const bool holds =
          ask([&] { return std::ranges::all_of(nodes_, [&](const auto& node) { return condition(*node); }); });
      if (holds) break;
      std::this_thread::sleep_for(kLook);
    }
    return secondsSince(begin);
  }
  // On the thread of the nodes.
  template <typename Question>
  auto ask(const Question& question) {
    std::promise<decltype(question())> answer;
    thread_.post([&] { answer.set_value(question()); });
    return answer.get_future().get();
  }

  double claimRequests() {
    double sum = 0;
    for (const auto& node : nodes_) sum += static_cast<double>(node->protocol.counters().claim_requests.value());
    return sum;
  }
  double losses() {
    double sum = 0;
    for (const auto* nodes : {&nodes_, &ended_}) {
      for (const auto& node : *nodes) {
        const naming::Counters& counters = node->protocol.counters();
        sum +=
            static_cast<double>(counters.leases_lost.value() + counters.keys_lost.value() + counters.conflicts.value());
      }
    }
    return sum;
  }
  bool isDense() {
    return ask([this] {
      std::set<int64_t> ids;
      for (const auto& node : nodes_) {
        if (const auto owned = node->protocol.name().ownership()) ids.insert(owned->id);
      }
      return static_cast<int64_t>(ids.size()) == count_ && *ids.rbegin() == count_;
    });
  }

  const int64_t count_;
  const std::chrono::seconds lease_;
  test_support::EtcdServer server_;
  const std::unique_ptr<etcd::CompletionThread> owned_thread_ = etcd::CompletionThread::make().value();
  etcd::CompletionThread& thread_ = *owned_thread_;
  std::vector<std::unique_ptr<etcd::Client>> clients_;
  std::vector<std::shared_ptr<Node>> nodes_;
  std::vector<std::shared_ptr<Node>> ended_;
};

void print(const std::string& first, const Row& row, int digits_at_least) {
  fmt::print("{:>6}", first);
  for (size_t i = 0; i < row.size(); ++i)
    fmt::print("{:>{}.{}f}", row[i], kColumns[i].width, std::max(kColumns[i].digits, digits_at_least));
  fmt::print("\n");
  std::fflush(stdout);
}

// By least squares of the logarithms; 0 where a value is.
Row fittedPowers(const std::vector<int64_t>& sizes, const std::vector<Row>& rows) {
  Row powers{};
  for (size_t column = 0; column < powers.size(); ++column) {
    double x = 0, y = 0, xx = 0, xy = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      const double log_size = std::log(static_cast<double>(sizes[i]));
      const double log_value = std::log(std::max(rows[i][column], 1e-9));
      x += log_size, y += log_value, xx += log_size * log_size, xy += log_size * log_value;
    }
    const auto count = static_cast<double>(rows.size());
    const bool has_zero = std::ranges::any_of(rows, [column](const Row& row) { return row[column] <= 0; });
    powers[column] = has_zero ? 0 : (count * xy - x * y) / (count * xx - x * x);
  }
  return powers;
}

}  // namespace
}  // namespace idetcd::bench

int main(int argc, char** argv) {
  using namespace idetcd;
  bench::Arguments arguments(argc, argv, bench::kUsage);
  const auto only = arguments.number<int64_t>("--nodes", 0);
  const auto most = arguments.number<int64_t>("--most", 800);
  const auto connections = arguments.number<int>("--connections", 16);
  const std::chrono::seconds lease(arguments.number<int64_t>("--lease", 20));
  const std::chrono::seconds rest(arguments.number<int64_t>("--rest", 60));
  const std::chrono::seconds churn(arguments.number<int64_t>("--churn", 60));
  arguments.finish();
  if (only < 0 || most < 1 || connections < 1 || lease.count() < 1 || rest.count() < 1 ||
      churn.count() < 0) {
    std::fputs(bench::kUsage, stderr);
    return 2;
  }

  fmt::print("{} processors, {} connections, lease {} s\n{:>6}", std::thread::hardware_concurrency(), connections,
             lease.count(), "nodes");
  for (const bench::Column& column : bench::kColumns) fmt::print("{:>{}}", column.title, column.width);
  fmt::print("\n");
  std::vector<int64_t> sizes;
  if (only > 0) sizes.push_back(only);
  for (int64_t size = 100; only == 0 && size <= most; size *= 2) sizes.push_back(size);
  std::vector<bench::Row> rows;
  bool good = true;
  for (const int64_t size : sizes) {
    const bench::Result result = bench::Run(size, connections, lease).measure(rest, churn);
    bench::print(std::to_string(size), result.row, 0);
    rows.push_back(result.row);
    good = good && result.is_dense;
  }
  if (rows.size() > 1) bench::print("N^", bench::fittedPowers(sizes, rows), 2);
  if (!good) std::fputs("the names are not 1 to N\n", stderr);
  return good ? 0 : 1;
}
