/* Copies bytes and adds them up on the way: each is read from memory once and written once.
 *
 * The sums are those of docs/checkpoint-format.md: of each chunk, read as little-endian 64-bit words in rows of 511,
 * the sums of the columns modulo 2^64. What is less than a row at the end of a chunk is copied and not added.
 *
 * Stands alone: no header but the compiler's own, no library, not even libc, and no instruction that a processor of its
 * architecture may lack, unless it is asked first. So one file serves every Linux on that architecture. hatch_build.py
 * compiles it.
 */
#include <stddef.h>
#include <stdint.h>

enum {
    ROW_WORDS = 511,
    ROW_BYTES = 8 * ROW_WORDS,
    PAIR_BYTES = 16,
    /* Two words at once never straddle the end of two rows, because there the number of words is even. */
    TWO_ROWS_PAIRS = ROW_WORDS,
    LINE_BYTES = 64,
    LINE_PAIRS = LINE_BYTES / PAIR_BYTES,
    /* Far enough that memory has answered by then; half a page, so half of the time the TLB has it already. */
    PREFETCH_BYTES = 2048,
    /* A core has more of memory under way when it goes through several places side by side: what reads ahead of it
     * by itself stops at the end of each page. Each place is eight rows from the one before, so all are in the same
     * column, and that is a whole number of lines, so none is written in two parts. */
    PLACES = 8,
    PLACE_BYTES = 8 * ROW_BYTES,
    /* A line that begins at the end of two rows ends in the next two. */
    SUMMED_PAIRS = TWO_ROWS_PAIRS + LINE_PAIRS - 1,
};

/* Like memcpy's, its pointers may point to anything. */
typedef uint64_t pair __attribute__((vector_size(PAIR_BYTES), may_alias));
typedef uint64_t unaligned_pair __attribute__((vector_size(PAIR_BYTES), aligned(1), may_alias));

/* Bytes that are next to each other, in the file and in memory. */
struct run {
    uint64_t offset;
    uint64_t size_bytes;
    const uint8_t *source;
};

enum way { ADD, COPY, STREAM };

/* Gives the words that are `at` bytes from where source and target begin. */
static inline __attribute__((always_inline)) pair
take_pair(enum way way, const uint8_t *source, uint8_t *target, size_t at)
{
    pair words = *(const unaligned_pair *)(source + at);
    if (way == COPY)
        *(unaligned_pair *)(target + at) = words;
#ifdef __x86_64__
    /* Past the cache: a store would first read what it is about to write over. ARM's cores notice by themselves that
     * whole lines are written (Arm Neoverse N1 TRM, "Write streaming mode"). */
    if (way == STREAM)
        __builtin_nontemporal_store(words, (pair *)(target + at));
#else
    if (way == STREAM)
        *(pair *)(target + at) = words;
#endif
    return words;
}

/* Takes the whole lines from `start` to `end`, and side by side with them those PLACE_BYTES, 2 * PLACE_BYTES... behind:
 * at `places` places in all. `column` is that of the first pair in its two rows. */
static inline __attribute__((always_inline)) void
take_lines(enum way way, size_t places, const uint8_t *source, uint8_t *target, size_t start, size_t end,
           size_t column, pair *sums)
{
    for (size_t line = start; line < end; line += LINE_BYTES) {
        pair line_sums[LINE_PAIRS];
        for (size_t i = 0; i < LINE_PAIRS; i++)
            line_sums[i] = sums[column + i];
        for (size_t at = line; at < line + places * PLACE_BYTES; at += PLACE_BYTES) {
            __builtin_prefetch((const void *)((uintptr_t)source + at + PREFETCH_BYTES));
            for (size_t i = 0; i < LINE_PAIRS; i++)
                line_sums[i] += take_pair(way, source, target, at + i * PAIR_BYTES);
        }
        for (size_t i = 0; i < LINE_PAIRS; i++)
            sums[column + i] = line_sums[i];
        column += LINE_PAIRS;
        if (column >= TWO_ROWS_PAIRS)
            column -= TWO_ROWS_PAIRS;
    }
}

static inline size_t column_after(size_t column, size_t size_bytes)
{
    return (column + size_bytes / PAIR_BYTES) % TWO_ROWS_PAIRS;
}

/* `column` is that of the first pair in its two rows. */
static inline __attribute__((always_inline)) void
take_pairs(enum way way, const uint8_t *source, uint8_t *target, size_t size_bytes, size_t column, pair *sums)
{
    size_t at = 0;
    for (; at < size_bytes && way == STREAM && (uintptr_t)(target + at) % LINE_BYTES; at += PAIR_BYTES)
        sums[column_after(column, at)] += take_pair(way, source, target, at);
    for (; size_bytes - at >= PLACES * PLACE_BYTES; at += PLACES * PLACE_BYTES)
        take_lines(way, PLACES, source, target, at, at + PLACE_BYTES, column_after(column, at), sums);
    size_t lines_end = size_bytes - (size_bytes - at) % LINE_BYTES;
    take_lines(way, 1, source, target, at, lines_end, column_after(column, at), sums);
    for (at = lines_end; at < size_bytes; at += PAIR_BYTES)
        sums[column_after(column, at)] += take_pair(way, source, target, at);
}

/* For what is not a whole pair: a word's bytes may even be in two runs. */
static void take_bytes(const uint8_t *source, uint8_t *target, size_t size_bytes, size_t position, pair *sums)
{
    for (size_t i = 0; i < size_bytes; i++, position++) {
        uint8_t byte = source[i];
        size_t word = position / 8 % (2 * ROW_WORDS);
        sums[word / 2][word % 2] += (uint64_t)byte << position % 8 * 8;
        if (target)
            target[i] = byte;
    }
}

/* `position` is that of the first byte in its chunk. */
static void take(const uint8_t *source, uint8_t *target, size_t size_bytes, size_t position, pair *sums)
{
    size_t before = -position % PAIR_BYTES;
    if (before > size_bytes)
        before = size_bytes;
    take_bytes(source, target, before, position, sums);
    source += before;
    target = target ? target + before : NULL;
    position += before;
    size_bytes -= before;

    size_t taken = size_bytes / PAIR_BYTES * PAIR_BYTES, column = position / PAIR_BYTES % TWO_ROWS_PAIRS;
    if (!target)
        take_pairs(ADD, source, NULL, taken, column, sums);
    else if ((uintptr_t)target % PAIR_BYTES)
        take_pairs(COPY, source, target, taken, column, sums);
    else
        take_pairs(STREAM, source, target, taken, column, sums);
    take_bytes(source + taken, target ? target + taken : NULL, size_bytes - taken, position + taken, sums);
}

/* Copies what lies between two offsets of a file, and gives the column sums of each of its chunks.
 *
 * `runs` are in the order of their offsets and do not overlap; what none of them has counts as zeros. They are copied
 * to the file's memory, `file`, but for those that are there already; to nowhere if it is NULL. `start` is where a chunk
 * begins, `end` where one ends or the file does. `sums` has room for ROW_WORDS words for each chunk. */
void copy_and_add(const struct run *runs, size_t run_count, uint8_t *file, uint64_t start, uint64_t end,
                  uint64_t chunk_bytes, uint64_t *sums)
{
    const struct run *last = runs + run_count;
    for (; start < end; start += chunk_bytes, sums += ROW_WORDS) {
        uint64_t stop = end - start < chunk_bytes ? end : start + chunk_bytes;
        uint64_t added_end = start + (stop - start) / ROW_BYTES * ROW_BYTES;
        pair two_rows[SUMMED_PAIRS];
        for (size_t i = 0; i < SUMMED_PAIRS; i++)
            two_rows[i] = (pair){0, 0};

        while (runs < last && runs->offset + runs->size_bytes <= start)
            runs++;
        for (const struct run *run = runs; run < last && run->offset < stop; run++) {
            uint64_t low = run->offset > start ? run->offset : start;
            uint64_t high = run->offset + run->size_bytes < stop ? run->offset + run->size_bytes : stop;
            uint64_t middle = added_end < low ? low : added_end < high ? added_end : high;
            const uint8_t *source = run->source + (low - run->offset);
            uint8_t *target = file && file + run->offset != run->source ? file + low : NULL;
            take(source, target, middle - low, low - start, two_rows);
            if (target)
                for (uint64_t i = middle - low; i < high - low; i++)
                    target[i] = source[i];
        }
        for (size_t i = TWO_ROWS_PAIRS; i < SUMMED_PAIRS; i++)
            two_rows[i - TWO_ROWS_PAIRS] += two_rows[i];
        for (size_t i = 0; i < ROW_WORDS; i++)
            sums[i] = two_rows[i / 2][i % 2] + two_rows[(i + ROW_WORDS) / 2][(i + ROW_WORDS) % 2];
    }
#ifdef __x86_64__
    /* What went past the cache is ordered like nothing else; others may look now. */
    __builtin_ia32_sfence();
#endif
}

#ifdef __x86_64__
/* CRC-32 by multiplication without carries, where the processor has it (Gopal and others, "Fast CRC Computation for
 * Generic Polynomials Using PCLMULQDQ Instruction", Intel 2009). */
typedef long long quad __attribute__((vector_size(16), may_alias));
typedef long long unaligned_quad __attribute__((vector_size(16), aligned(1), may_alias));

/* The remainders of x to the powers of 544, 480, 160 and 96, reflected: those of four and of one vector further. */
static const quad FOUR_FURTHER = {0x0154442bd4, 0x01c6e41596}, ONE_FURTHER = {0x01751997d0, 0x00ccaa009e};

static inline __attribute__((always_inline, target("pclmul"))) quad further(quad vector, quad powers)
{
    return __builtin_ia32_pclmulqdq128(vector, powers, 0x00) ^ __builtin_ia32_pclmulqdq128(vector, powers, 0x11);
}

static int has_multiplication_without_carries(void)
{
    uint32_t a = 1, b, c = 0, d;
    __asm__("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
    return c >> 1 & 1;
}

/* Makes 16 bytes with the same CRC-32 as `size_bytes`, a whole number of 64, from the register `before`. The CRC-32 of
 * the 16 begins with an empty register. Gives 0 where the processor cannot. */
__attribute__((target("pclmul"))) int
crc32_shorten(const uint8_t *source, size_t size_bytes, uint32_t before, uint8_t *shortened)
{
    if (size_bytes < 64 || size_bytes % 64 || !has_multiplication_without_carries())
        return 0;
    const unaligned_quad *vectors = (const unaligned_quad *)source;
    quad folded[4];
    for (size_t i = 0; i < 4; i++)
        folded[i] = vectors[i];
    folded[0] ^= (quad){before, 0};
    for (size_t at = 4; at < size_bytes / 16; at += 4)
        for (size_t i = 0; i < 4; i++)
            folded[i] = further(folded[i], FOUR_FURTHER) ^ vectors[at + i];
    for (size_t i = 1; i < 4; i++)
        folded[i] ^= further(folded[i - 1], ONE_FURTHER);
    *(unaligned_quad *)shortened = folded[3];
    return 1;
}
#else
int crc32_shorten(const uint8_t *source, size_t size_bytes, uint32_t before, uint8_t *shortened)
{
    (void)source, (void)size_bytes, (void)before, (void)shortened;
    return 0;
}
#endif
