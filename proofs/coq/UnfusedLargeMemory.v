(* Without fusion, in a large memory: the constant is 4 again (new ground).

   For unfused attention (as in UnfusedBound.v: q_i meets k_j at one moment, a_i meets
   v_j at another, scores may wait in fast memory, be spilled, reloaded and formed
   again) and any window length 0 < L <= M, with D = d + dv,

     L (visible pairs) D^2 <= (L (M + L - 1) + D^2 M) traffic

   For dv = d, M = k^2 >= 4 d^2 and L = 2dk, without a mask, it says

     4 nq nk d^2 <= (M + 4 d sqrt(M)) traffic

   so the constant tends to 4 as M / d^2 grows, and is above 2 from M = 16 d^2 on:
   to leading order no unfused schedule beats flash2 when M is much larger than d^2.

   Hypotheses: 0 < dv; the execution is valid and complete.

   Proof: Windows.v, with the scores as hubs.  A pair whose score is formed and absorbed
   in one window puts its D^2 word pairs together among the M + L words seen there.
   Source: derived here. *)
From Coq Require Import Arith Lia List.
From iosim Require Import Lists Machine Meeting Windows AttentionModel FusedBound.
Import ListNotations.

Definition is_score (w : aword) : bool := match w with Ws _ _ => true | _ => false end.
Definition score_of (t : atask) : aword :=
  match t with Score i j | Absorb i j => Ws i j | Finish i => Wm i end.
Definition score_task (t : atask) : list atask :=
  match t with Absorb i j => [Score i j] | _ => [] end.

Theorem unfused_window_bound d dv vis M L es :
  0 < L -> L <= M -> 0 < dv -> NoDup vis ->
  valid M (init (attention false true d dv vis)) es ->
  complete false true d dv vis (run (init _) es) ->
  L * (length vis * ((d + dv) * (d + dv)))
  <= (L * (M + L - 1) + (d + dv) * (d + dv) * M) * traffic es.
Proof.
  intros HL0 HL Hdv Hvis V C.
  destruct (window_meeting (X := attention false true d dv vis) M L is_score score_of score_task HL0)
    with (es := es) as (k & ar & rl & far & paid & P & Fa & Hk & T & G); trivial.
  - intros [] E; cbn in *; congruence.
  - intros t w. destruct t; cbn; rewrite ?in_app_iff; cbn; tauto.
  - intros t c Hr t' Ht'. destruct t as [i j | i j | i]; cbn in *; try contradiction.
    destruct Ht' as [<- | []]. auto.
  - set (lost := fun p => if in_dec aword_dec (Ws (fst p) (snd p)) far then true else false).
    set (near := filter (fun p => negb (lost p)) vis). set (gone := filter lost vis).
    apply (window_count M L _ _ (length near) (length far) (length paid) k ar rl); trivial.
    + (* a pair is near or its score is in far *)
      assert (E : length vis = length near + length gone) by apply filter_split.
      assert (Hg : length gone <= length far).
      { rewrite <- (map_length (fun p => Ws (fst p) (snd p)) gone).
        apply NoDup_incl_length.
        - apply NoDup_map; [ intros [] []; cbn; congruence | now apply NoDup_filter ].
        - intros w Hw. apply in_map_iff in Hw as (p & <- & Hp). apply filter_In in Hp as [_ Hp]. unfold lost in Hp.
          destruct (in_dec aword_dec (Ws (fst p) (snd p)) far); [ assumption | discriminate ]. }
      change (word (attention false true d dv vis)) with aword in *. lia.
    + (* near pairs have met *)
      apply (count_targets query_side owner (fused_targets d dv)).
      * now apply NoDup_filter.
      * apply fused_targets_shape.
      * apply fused_targets_owner.
      * intros [i j] x y Hp Hxy. apply filter_In in Hp as [Hp Hf].
        unfold lost in Hf. cbn [fst snd] in Hf.
        assert (Nxy : x <> y).
        { intros ->. apply fused_targets_owner in Hxy as (? & ? & _). congruence. }
        apply in_prod_iff in Hxy as [Hx Hy]. cbn in Hx, Hy.
        assert (W : exists c, c < dv /\ (is_input x = true \/ x = Wa i c)).
        { apply in_app_iff in Hx as [Hx | Hx]; apply in_words in Hx as (c & Hc & <-); eauto. }
        destruct W as (c & Hc & Ix).
        destruct (G (Wa i c) (Absorb i j) eq_refl (C i j c Hp Hc)) as [H | H].
        -- cbn [score_of] in H. destruct (in_dec aword_dec (Ws i j) far); [ discriminate | contradiction ].
        -- apply H; trivial.
           ++ cbn. rewrite !in_app_iff in *. tauto.
           ++ cbn. rewrite !in_app_iff in *. tauto.
           ++ left. apply in_app_iff in Hy as [Hy | Hy]; apply in_words in Hy as (c' & _ & <-); reflexivity.
Qed.

(* dv = d, no mask, M = k^2 and windows of 2dk: the constant is 4 / (1 + 4d / k). *)
Corollary unfused_bound_large_memory d nq nk k es :
  0 < d -> 2 * d <= k ->
  valid (k * k) (init (attention false true d d (all_pairs nq nk))) es ->
  complete false true d d (all_pairs nq nk) (run (init _) es) ->
  4 * nq * nk * d * d <= (k * k + 4 * d * k) * traffic es.
Proof.
  intros Hd Hk V C.
  assert (HL : 0 < 2 * d * k) by nia.
  assert (HM : 2 * d * k <= k * k) by (apply Nat.mul_le_mono_r; exact Hk).
  pose proof (unfused_window_bound d d _ (k * k) (2 * d * k) es HL HM Hd
    (all_pairs_NoDup nq nk) V C) as H.
  rewrite all_pairs_length in H.
  set (c := traffic es) in *. clearbody c.
  apply (Nat.mul_le_mono_pos_l _ _ (2 * d * k)); [ exact HL | ].
  assert (B : (2 * d * k * (k * k + 2 * d * k - 1) + (d + d) * (d + d) * (k * k)) * c
              <= 2 * d * k * (k * k + 4 * d * k) * c).
  { apply Nat.mul_le_mono_r.
    assert (2 * d * k * (k * k + 2 * d * k - 1) <= 2 * d * k * (k * k + 2 * d * k))
      by (apply Nat.mul_le_mono_l; lia). lia. }
  lia.
Qed.
