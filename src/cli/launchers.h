// What launchers of distributed programs read: TensorFlow, MPI, PyTorch. An index, or rank, is the position among the
// names that are held, so that ranks are dense although IDs are not. Names are without the dot at their end. Pure.
#pragma once

#include "base/json.h"
#include "cli/failure.h"
#include "cli/slots.h"

namespace idetcd::cli {

// The position of this node. The failure may pass: it has no name yet, or is drained.
Reply<size_t> ownIndex(const std::vector<HeldSlot>& slots);

// {"cluster": {ROLE: ["name:port", ...]}, "task": {"type": ROLE, "index": i}}
nlohmann::json tensorflowConfig(const std::vector<HeldSlot>& slots, size_t own, const std::string& role, uint64_t port);

// "name slots=N" a line; without `count` just the name.
std::string hostfile(const std::vector<HeldSlot>& slots, std::optional<uint64_t> count);
nlohmann::json hostfileAsJson(const std::vector<HeldSlot>& slots, std::optional<uint64_t> count);

// RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT. REQUIRES: own < slots.size().
std::vector<std::pair<std::string, std::string>> torchrunVariables(const std::vector<HeldSlot>& slots, size_t own,
                                                                   uint64_t port);

// "NAME=VALUE" a line, as a POSIX shell and systemd's EnvironmentFile= take it.
std::string asEnvironment(const std::vector<std::pair<std::string, std::string>>& variables);

}  // namespace idetcd::cli
