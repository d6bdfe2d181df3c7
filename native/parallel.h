// One level of parallelism: tasks handed out dynamically to a few threads.
//
// OpenMP, although torch brings its own libgomp: torch loads that one with global symbols before
// this module is imported, so the dynamic linker binds our calls to it, and both share one pool of
// threads. Threads of our own compete with torch's, which spin for a while after each of torch's
// parallel regions: a product that alternates with a torch operation took 1.1 ms with two shared
// threads, 2.2 ms with two of our own, and 2.0 ms with one. Without OpenMP (some clang
// installations) threads are started per call, which the work threshold makes affordable.
#pragma once
#include <cstdint>

#ifdef _OPENMP
#include <omp.h>
#else
#include <atomic>
#include <thread>
#include <vector>
#endif

namespace hoplite {

// Below this many multiply-adds (roughly half a millisecond) a second thread brings little, and on a
// busy machine, where it must first get a core, it costs much.
constexpr int64_t min_parallel_work = int64_t(1) << 22;

inline int useful_threads(int threads, int64_t work) {
    return work < min_parallel_work || threads < 1 ? 1 : threads;
}

// f(task, worker) for task = 0..tasks-1, worker in [0, threads); f must not throw.
template <class F>
void parallel_for(int64_t tasks, int threads, F&& f) {
    if (threads <= 1 || tasks <= 1) {
        for (int64_t task = 0; task < tasks; ++task) f(task, 0);
        return;
    }
#ifdef _OPENMP
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
    for (int64_t task = 0; task < tasks; ++task) f(task, omp_get_thread_num());
#else
    std::atomic<int64_t> next{0};
    auto work = [&](int worker) {
        for (int64_t task; (task = next++) < tasks;) f(task, worker);
    };
    std::vector<std::thread> others;
    for (int worker = 1; worker < threads; ++worker) others.emplace_back(work, worker);
    work(0);
    for (auto& thread : others) thread.join();
#endif
}

}  // namespace hoplite
