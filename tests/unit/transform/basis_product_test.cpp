// SPDX-License-Identifier: Apache-2.0
#include "transform/basis_product.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

namespace kvcodec::transform {
namespace {

struct Case {
  size_t rows, columns, depth, depth_of_a;
  bool transposed, indexed, with_start;
};

class Operands {
 public:
  Operands(const Case& c, uint32_t seed) : case_(c), stride_(padded_columns(c.columns)) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    const auto fill = [&](std::vector<float>& v, size_t n) {
      v.resize(n);
      for (float& x : v) x = normal(random);
    };
    fill(a_, c.rows * c.depth_of_a);
    fill(b_, c.depth * stride_);
    for (float& x : b_)
      if (random() % 2 == 0) x = 0;
    fill(start_, c.rows);
    for (size_t k = 0; k < c.depth; ++k)
      index_.push_back(static_cast<uint32_t>((k * 7 + 3) % std::max<size_t>(c.depth_of_a, 1)));
  }

  Product product(std::vector<float>& out) const {
    out.assign(case_.rows * stride_, -7.0f);
    Product p;
    p.rows = case_.rows;
    p.columns = case_.columns;
    p.depth = case_.depth;
    if (case_.with_start) p.start = start_.data();
    p.a = a_.data();
    p.a_row = case_.transposed ? 1 : case_.depth_of_a;
    p.a_depth = case_.transposed ? case_.rows : 1;
    if (case_.indexed) p.index = index_.data();
    p.b = b_.data();
    p.out = out.data();
    p.b_row = p.out_row = stride_;
    return p;
  }

  double exact(size_t i, size_t j, double& size) const {
    double sum = case_.with_start ? start_[i] : 0;
    size = std::abs(sum);
    for (size_t k = 0; k < case_.depth; ++k) {
      const size_t at = case_.indexed ? index_[k] : k;
      const double term =
          double{case_.transposed ? a_[at * case_.rows + i] : a_[i * case_.depth_of_a + at]} *
          b_[k * stride_ + j];
      sum += term;
      size += std::abs(term);
    }
    return sum;
  }
  size_t stride() const { return stride_; }

 private:
  const Case case_;
  const size_t stride_;
  std::vector<float> a_, b_, start_;
  std::vector<uint32_t> index_;
};

const Case kCases[] = {
    {1, 1, 1, 1, true, false, true},          {5, 2, 0, 1, true, false, true},
    {300, 40, 200, 200, true, true, true},    {1, 1, 1, 1, false, false, true},
    {5, 3, 0, 1, false, false, true},         {5, 3, 0, 1, false, false, false},
    {12, 32, 128, 128, false, false, true},   {13, 33, 129, 129, true, false, true},
    {25, 64, 300, 300, false, false, false},  {11, 31, 257, 400, true, true, true},
    {40, 17, 90, 50, false, true, true},      {384, 64, 384, 384, true, false, true},
    {384, 48, 384, 384, false, false, false},
};

// Not near: the same bits, so that objects and restored caches are the same on every machine.
TEST(BasisProduct, EveryVariantGivesTheBitsOfTheReference) {
  uint32_t seed = 0;
  for (const Case& c : kCases) {
    const Operands operands(c, ++seed);
    std::vector<float> want, have;
    product_variants()[0].multiply(operands.product(want));
    for (const ProductOps& variant : product_variants()) {
      if (variant.sparse && !c.transposed) continue;
      variant.multiply(operands.product(have));
      for (size_t i = 0; i < c.rows; ++i) {
        for (size_t j = 0; j < c.columns; ++j) {
          const size_t at = i * operands.stride() + j;
          ASSERT_EQ(std::memcmp(&have[at], &want[at], sizeof(float)), 0)
              << variant.name << " of case " << seed << " at " << i << ", " << j << ": " << have[at]
              << " for " << want[at];
        }
      }
    }
  }
}

TEST(BasisProduct, TheReferenceIsTheProduct) {
  uint32_t seed = 0;
  for (const Case& c : kCases) {
    const Operands operands(c, ++seed);
    std::vector<float> out;
    product_variants()[0].multiply(operands.product(out));
    for (size_t i = 0; i < c.rows; ++i) {
      for (size_t j = 0; j < c.columns; ++j) {
        double size = 0;
        const double exact = operands.exact(i, j, size);
        // Each of the additions rounds by half a unit of a partial sum at most.
        EXPECT_NEAR(out[i * operands.stride() + j], exact, size * double(c.depth + 1) * 0x1p-24);
      }
    }
  }
}

// A product cut anywhere and resumed by any variant is the same chains.
TEST(BasisProduct, ResumesWhereItWasCut) {
  const Case c = {30, 40, 200, 200, true, true, true};
  const Operands operands(c, 3);
  std::vector<float> want, have;
  product_variants()[0].multiply(operands.product(want));
  for (const ProductOps& first : product_variants()) {
    for (const ProductOps& second : product_variants()) {
      for (size_t cut : {1u, 127u, 128u, 199u}) {
        Product p = operands.product(have);
        p.depth = cut;
        first.multiply(p);
        p.resume = true;
        p.depth = c.depth - cut;
        p.index += cut;
        p.b += cut * p.b_row;
        second.multiply(p);
        for (size_t i = 0; i < c.rows; ++i)
          for (size_t j = 0; j < c.columns; ++j)
            ASSERT_EQ(have[i * operands.stride() + j], want[i * operands.stride() + j])
                << first.name << ", " << second.name << " at " << cut;
      }
    }
  }
}

TEST(BasisProduct, DenseRowsEndWhereSparseOnesPay) {
  const auto split = [](const std::vector<uint32_t>& nonzero) { return dense_rows(nonzero, 64); };
  EXPECT_EQ(split({}), 0u);
  EXPECT_EQ(split({64, 64, 60}), 3u);
  EXPECT_EQ(split({2, 1, 1, 0}), 0u);
  EXPECT_EQ(split({64, 63, 40, 10, 5, 1}), 3u);
  EXPECT_EQ(split({64, 2, 64, 2, 1, 1}), 3u) << "a sparse row among dense ones";
}

TEST(BasisProduct, TheBestIsOneThatFits) {
  EXPECT_STREQ(product_variants()[0].name, "reference");
  EXPECT_FALSE(best_product().sparse);
  EXPECT_EQ(sparse_product().sparse, product_variants().size() > 1);
}

}  // namespace
}  // namespace kvcodec::transform
