//! Sobol's sequence (Sobol 1967): points that fill a cube more evenly than random ones. Direction
//! numbers of Joe and Kuo (2008), in the order of Antonov and Saleev (1979).

/// Primitive polynomials, a bit for each coefficient, and the first direction numbers, for the
/// dimensions after the first (`new-joe-kuo-6.21201`).
const DIRECTIONS: [(u32, &[u32]); 31] = [
    (3, &[1]),
    (7, &[1, 3]),
    (11, &[1, 3, 1]),
    (13, &[1, 1, 1]),
    (19, &[1, 1, 3, 3]),
    (25, &[1, 3, 5, 13]),
    (37, &[1, 1, 5, 5, 17]),
    (41, &[1, 1, 5, 5, 5]),
    (47, &[1, 1, 7, 11, 19]),
    (55, &[1, 1, 5, 1, 1]),
    (59, &[1, 1, 1, 3, 11]),
    (61, &[1, 3, 5, 5, 31]),
    (67, &[1, 3, 3, 9, 7, 49]),
    (91, &[1, 1, 1, 15, 21, 21]),
    (97, &[1, 3, 1, 13, 27, 49]),
    (103, &[1, 1, 1, 15, 7, 5]),
    (109, &[1, 3, 1, 15, 13, 25]),
    (115, &[1, 1, 5, 5, 19, 61]),
    (131, &[1, 3, 7, 11, 23, 15, 103]),
    (137, &[1, 3, 7, 13, 13, 15, 69]),
    (143, &[1, 1, 3, 13, 7, 35, 63]),
    (145, &[1, 3, 5, 9, 1, 25, 53]),
    (157, &[1, 3, 1, 13, 9, 35, 107]),
    (167, &[1, 3, 1, 5, 27, 61, 31]),
    (171, &[1, 1, 5, 11, 19, 41, 61]),
    (185, &[1, 3, 5, 3, 3, 13, 69]),
    (191, &[1, 1, 7, 13, 1, 19, 1]),
    (193, &[1, 3, 7, 5, 13, 19, 59]),
    (203, &[1, 1, 3, 9, 25, 29, 41]),
    (211, &[1, 3, 5, 13, 23, 1, 55]),
    (213, &[1, 3, 7, 3, 13, 59, 17]),
];

/// Coordinate `dimension`, below 32, of point `index`, from 0, in units of 2⁻³².
pub fn coordinate(dimension: usize, index: u32) -> u32 {
    let gray = index ^ (index >> 1);
    let directions = directions(dimension);
    (0..32).filter(|bit| gray >> bit & 1 == 1).fold(0, |x, bit| x ^ directions[bit])
}

/// The direction numbers of a dimension, shifted to the left end of their word.
fn directions(dimension: usize) -> [u32; 32] {
    let mut v: [u32; 32] = std::array::from_fn(|i| 1 << (31 - i));
    let Some((polynomial, first)) = dimension.checked_sub(1).map(|d| DIRECTIONS[d]) else {
        return v;
    };
    let degree = first.len();
    for i in 0..32 {
        v[i] = match first.get(i) {
            Some(number) => number << (31 - i),
            None => (1..degree)
                .filter(|k| polynomial >> (degree - k) & 1 == 1)
                .fold(v[i - degree] ^ (v[i - degree] >> degree), |x, k| x ^ v[i - k]),
        };
    }
    v
}
