//! Sorted numbers in blocks of a cache line: a search reads one block of each level of a tree.

/// Numbers in a cache line.
const BLOCK_LEN: usize = 8;

/// Numbers in their order. Those behind the last one are `u64::MAX`.
#[repr(align(64))]
struct NumberBlock([u64; BLOCK_LEN]);

/// Sorted numbers below `u64::MAX`.
pub(super) struct SortedBlocks {
    /// All numbers, then the first of each block, then the first of each block of these, and so on down to one block.
    levels: Vec<Vec<NumberBlock>>,
}

impl SortedBlocks {
    pub(super) fn new(numbers: &[u64]) -> Self {
        let mut levels = vec![blocks(numbers)];
        while let Some(level) = levels.last().filter(|level| level.len() > 1) {
            let first: Vec<_> = level.iter().map(|NumberBlock([first, ..])| *first).collect();
            levels.push(blocks(&first));
        }
        Self { levels }
    }

    /// Returns how many of the numbers are at most this one, which is below `u64::MAX`.
    #[inline]
    pub(super) fn count_up_to(&self, number: u64) -> usize {
        let count_in = |level: &Vec<NumberBlock>, count: usize| {
            // The numbers before a block are not greater than its first one.
            let index = count.checked_sub(1)?;
            let NumberBlock(block) = level.get(index)?;
            Some(index * BLOCK_LEN + block.iter().filter(|other| **other <= number).count())
        };
        self.levels.iter().rev().try_fold(1, |count, level| count_in(level, count)).unwrap_or(0)
    }
}

fn blocks(numbers: &[u64]) -> Vec<NumberBlock> {
    let block = |chunk: &[u64]| {
        let mut block = [u64::MAX; BLOCK_LEN];
        block.iter_mut().zip(chunk).for_each(|(place, number)| *place = *number);
        NumberBlock(block)
    };
    numbers.chunks(BLOCK_LEN).map(block).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_the_numbers_up_to_each_number() {
        for len in [0, 1, 7, 8, 9, 63, 64, 65, 512, 513, 5_000] {
            let numbers: Vec<u64> = (0..len).map(|index| index / 3 * 5 + 1).collect();
            let sorted = SortedBlocks::new(&numbers);
            for number in (0..len * 2 + 3).chain([u64::MAX - 1]) {
                let expected = numbers.iter().filter(|other| **other <= number).count();
                assert_eq!(sorted.count_up_to(number), expected, "{number} of {len}");
            }
        }
    }

    #[test]
    fn a_search_reads_few_blocks() {
        let numbers: Vec<u64> = (0..100_000).collect();
        let levels: Vec<_> = SortedBlocks::new(&numbers).levels.iter().map(Vec::len).collect();
        assert_eq!(levels, [12_500, 1_563, 196, 25, 4, 1]);
    }
}
