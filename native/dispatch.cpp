// Picks, once per process, the best instruction set that both the build and the machine have.
#include "dispatch.h"

#include <stdexcept>

#ifdef HOPLITE_X86_DISPATCH
#include "cpu.h"
#endif

#define HOPLITE_DECLARE(arch)                                                                     \
    namespace hoplite::arch {                                                                     \
    template <class V, class I>                                                                   \
    void spmm_rows(const SpmmTile<V, I>&, int64_t, int64_t);                                      \
    template <class V>                                                                            \
    void hop_slices(const HopTile<V>&, int64_t, int64_t);                                         \
    template <class V>                                                                            \
    void weigh_rows(int64_t, int64_t, const V*, const V*, const V*, V*, double*);                 \
    template <class V>                                                                            \
    void pack_rows(int64_t, const int64_t*, const V*, int64_t, int64_t, V*);                      \
    template <class V>                                                                            \
    void unpack_rows(int64_t, const int64_t*, const V*, int64_t, int64_t, V*);                    \
    template <class V, class I>                                                                   \
    void drop_elements(const FeatureRows<V, I>&, int64_t, int64_t, V*);                           \
    template <class V, class I>                                                                   \
    void times_rows(const ElementRows<V, I>&, const TimesTile<V>&);                               \
    template <class V, class I>                                                                   \
    void add_rows(const ElementRows<V, I>&, const V*, int64_t, int64_t, V*);                      \
    template <class V>                                                                            \
    void drop_range(const KeepRule&, V, const V*, uint64_t, int64_t, V*);                         \
    template <class V>                                                                            \
    void add_scaled(V, const V*, V*, int64_t);                                                    \
    template <class V>                                                                            \
    void adam(const AdamStep<V>&, const V*, V*, V*, V*, int64_t);                                 \
    template <class V, class I>                                                                   \
    Kernels<V, I> table() {                                                                       \
        return {spmm_rows<V, I>, hop_slices<V>,        weigh_rows<V>,    pack_rows<V>,            \
                unpack_rows<V>,  drop_elements<V, I>,  times_rows<V, I>, add_rows<V, I>,          \
                drop_range<V>,   add_scaled<V>,        adam<V>};                                  \
    }                                                                                             \
    }

HOPLITE_DECLARE(baseline)
#ifdef HOPLITE_X86_DISPATCH
HOPLITE_DECLARE(avx2)
HOPLITE_DECLARE(avx512)
#endif

namespace hoplite {

namespace {

enum Level { level_baseline, level_avx2, level_avx512 };
const char* const level_names[] = {"baseline", "avx2", "avx512"};

Level best_level() {
#ifdef HOPLITE_X86_DISPATCH
    const CpuFeatures found = cpu_features();
    if (found.avx512) return level_avx512;
    if (found.avx2) return level_avx2;
#endif
    return level_baseline;
}

Level& level() {
    static Level current = best_level();
    return current;
}

}  // namespace

template <class V, class I>
const Kernels<V, I>& kernels() {
#ifdef HOPLITE_X86_DISPATCH
    static const Kernels<V, I> tables[] = {baseline::table<V, I>(), avx2::table<V, I>(),
                                           avx512::table<V, I>()};
#else
    static const Kernels<V, I> tables[] = {baseline::table<V, I>()};
#endif
    return tables[level()];
}

template const Kernels<float, int32_t>& kernels();
template const Kernels<float, int64_t>& kernels();
template const Kernels<double, int32_t>& kernels();
template const Kernels<double, int64_t>& kernels();

std::vector<std::string> architectures() {
    return std::vector<std::string>(level_names, level_names + best_level() + 1);
}

std::string architecture() { return level_names[level()]; }

void set_architecture(const std::string& name) {
    for (int candidate = 0; candidate <= best_level(); ++candidate)
        if (name == level_names[candidate]) {
            level() = Level(candidate);
            return;
        }
    throw std::invalid_argument("this machine or build has no kernels for '" + name + "'");
}

}  // namespace hoplite
