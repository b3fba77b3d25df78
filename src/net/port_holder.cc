#include "net/port_holder.h"

#include <charconv>
#include <filesystem>
#include <fstream>
#include <pwd.h>
#include <system_error>
#include <unistd.h>

namespace idetcd::net {
namespace {

namespace fs = std::filesystem;

struct Row {
  SocketAddress address;
  uint32_t uid = 0;
  uint64_t inode = 0;
};

// "0100007F:0035": the address in words of the host's byte order, as the kernel prints them.
std::optional<SocketAddress> parseLocal(std::string_view text) {
  std::array<uint8_t, 16> bytes{};
  const size_t digits = text.find(':');
  if (digits != 8 && digits != 32) return std::nullopt;
  SocketAddress address;
  for (size_t i = 0; i < digits; i += 8) {
    uint32_t word = 0;
    std::from_chars(text.data() + i, text.data() + i + 8, word, 16);
    std::memcpy(bytes.data() + i / 2, &word, sizeof(word));
  }
  std::from_chars(text.data() + digits + 1, text.data() + text.size(), address.port, 16);
  address.ip = IpAddress::fromBytes({bytes.data(), digits / 2});
  return address;
}

// proc(5): number, local address, remote address, state, queues, timer, retransmissions, uid, timeout, inode.
std::vector<Row> readTable(const std::string& path, bool only_listeners) {
  constexpr std::string_view kListens = "0A";
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  std::vector<Row> rows;
  std::string number, local, remote, state, queues, timer, retransmissions, timeout;
  Row row;
  while (file >> number >> local >> remote >> state >> queues >> timer >> retransmissions >> row.uid >> timeout >>
         row.inode) {
    std::getline(file, line);
    const auto address = parseLocal(local);
    if (!address || (only_listeners && state != kListens)) continue;
    row.address = *address;
    rows.push_back(row);
  }
  return rows;
}

std::string userOf(uint32_t uid) {
  passwd entry{};
  passwd* found = nullptr;
  std::array<char, 4096> buffer;
  if (getpwuid_r(uid, &entry, buffer.data(), buffer.size(), &found) == 0 && found != nullptr) return found->pw_name;
  return std::to_string(uid);
}

// False too if it is hidden.
bool hasSocket(const fs::path& process, uint64_t inode) {
  const std::string wanted = fmt::format("socket:[{}]", inode);
  std::error_code hidden;
  for (fs::directory_iterator fd(process / "fd", hidden), end; !hidden && fd != end; fd.increment(hidden)) {
    std::error_code gone;
    if (fs::read_symlink(fd->path(), gone) == wanted) return true;
  }
  return false;
}

void findProgram(uint64_t inode, PortHolder* holder) {
  std::error_code error;
  for (fs::directory_iterator process("/proc", error), end; !error && process != end; process.increment(error)) {
    const std::string name = process->path().filename();
    pid_t pid = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), pid).ec != std::errc()) continue;
    if (!hasSocket(process->path(), inode)) continue;
    std::ifstream comm(process->path() / "comm");
    if (std::getline(comm, holder->program)) holder->pid = pid;
    return;
  }
}

// An IPv6 wildcard may have the port for IPv4, too.
bool keepsFrom(const SocketAddress& held, const SocketAddress& wanted) {
  if (held.port != wanted.port) return false;
  if (held.ip.family() != wanted.ip.family()) return held.ip.isV6() && held.ip.isUnspecified();
  return held.ip == wanted.ip || held.ip.isUnspecified() || wanted.ip.isUnspecified();
}

}  // namespace

std::string PortHolder::toString() const {
  if (program.empty()) return fmt::format("a process of user {} has {}", user, address.toString());
  return fmt::format("{} (pid {}) has {}", pid == getpid() ? "this process" : program, pid, address.toString());
}

std::vector<PortHolder> portHolders(std::string_view protocol, const SocketAddress& wanted) {
  std::vector<PortHolder> holders;
  std::vector<std::string_view> families{"6"};
  if (wanted.ip.isV4()) families.insert(families.begin(), "");
  for (const std::string_view family : families) {
    for (const Row& row : readTable(fmt::format("/proc/net/{}{}", protocol, family), protocol == "tcp")) {
      if (!keepsFrom(row.address, wanted)) continue;
      PortHolder holder{.address = row.address, .user = userOf(row.uid), .program = {}, .inode = row.inode};
      findProgram(row.inode, &holder);
      holders.push_back(std::move(holder));
    }
  }
  return holders;
}

bool isHeldBy(pid_t pid, std::string_view protocol, const SocketAddress& wanted) {
  const auto holders = portHolders(protocol, wanted);
  const std::string user = userOf(geteuid());
  const auto is_known = [&](const PortHolder& one) {
    if (one.pid == 0) return one.user == user;
    // A service manager may have it as well.
    return one.pid == getpid() || hasSocket(fmt::format("/proc/{}", pid), one.inode);
  };
  return !holders.empty() && std::ranges::all_of(holders, is_known);
}

Error listenFailure(std::string_view protocol, const SocketAddress& address, const Error& error,
                    std::string_view otherwise) {
  std::string why;
  if (error.code == ErrorCode::kAddressInUse) {
    const auto holders = portHolders(protocol, address);
    why = fmt::format(": {}; stop it, or {} (`ss -lnp{} sport = {}` shows the program)",
                      holders.empty() ? "another process has it" : holders.front().toString(), otherwise, protocol.front(), address.port);
  } else if (error.code == ErrorCode::kPermissionDenied) {
    why = ": a port below 1024 needs CAP_NET_BIND_SERVICE, which systemd's unit and root have";
  }
  return {.message = fmt::format("listen {} {}: {}{}", protocol, address.toString(), error.message, why),
          .code = error.code};
}

}  // namespace idetcd::net
