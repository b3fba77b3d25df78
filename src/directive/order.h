// The directives that this server has. Any thread.
#pragma once

#include <span>
#include <string_view>

#include "resolve/directive.h"

namespace idetcd::directive {

// In the order in which their handlers are asked, whatever the order in the Corefile. As in CoreDNS but for one thing:
// the cluster's names come before everything that could hide them.
std::span<const resolve::DirectiveType* const> directives();

// Null: there is none of this name.
const resolve::DirectiveType* findDirective(std::string_view name);

// What an operator can ask of directives whether or not the Corefile has them (control/). While a configuration is built,
// before any of its directives shares anything.
void addControlPaths(resolve::Process& process);

// Directives of CoreDNS 1.14 that this server does not have.
std::span<const std::string_view> foreignDirectives();

}  // namespace idetcd::directive
