// The innermost loops for the instruction set in use.
#pragma once
#include <string>
#include <vector>

#include "kernels.h"

namespace hoplite {

template <class V, class I>
const Kernels<V, I>& kernels();

std::vector<std::string> architectures();  // those this machine can run, best last
std::string architecture();                // the one in use
void set_architecture(const std::string& name);

}  // namespace hoplite
